package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
)

// TestRightsOfACreator: rights that were revoked, removed or narrowed no longer count; merely expired ones do.
func TestRightsOfACreator(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const eve = "person https://p eve"
	person := &auth.Person{Subject: "eve", Groups: []string{"web"}}
	file, token := auth.Creator{FileToken: "ci"}, auth.Creator{TokenID: "tok-1"}
	signedOn := auth.Creator{Identity: eve, Subject: "eve", Groups: []string{"web"}}
	stored := func(scope auth.Scope, owner, selection string) *auth.StoredToken {
		return &auth.StoredToken{Scope: scope, Owner: owner, Selection: selection, ExpiresAt: now.Add(-time.Hour)}
	}
	operators := []auth.RoleBinding{{ID: "b", Role: auth.Operator, Group: "web", Selection: "site=x"}}
	ended := []auth.RoleBinding{{ID: "b", Role: auth.Operator, Group: "web", ExpiresAt: now}}
	for name, c := range map[string]struct {
		creator auth.Creator
		facts   auth.CreatorFacts
		want    string
	}{
		"a token of the file": {file, auth.CreatorFacts{File: []auth.FileToken{{Name: "ci", Scope: auth.ScopeOperate,
			Selection: "site=y"}}}, `operator "site=y"; `},
		"one that the file has no more": {file, auth.CreatorFacts{File: []auth.FileToken{{Name: "other",
			Scope: auth.ScopeAdmin}}}, ""},
		"a token that has expired": {token, auth.CreatorFacts{Token: stored(auth.ScopeAdmin, "token ci", "site=y")},
			`admin "site=y"; `},
		"a token that was revoked": {token, auth.CreatorFacts{Bindings: operators, Person: person}, ""},
		"the token of a person": {token, auth.CreatorFacts{Token: stored(auth.ScopeAdmin, eve, "rack=1"), Person: person,
			Bindings: operators}, `operator "site=x, rack=1"; `},
		"of a person without a role": {token, auth.CreatorFacts{Token: stored(auth.ScopeAdmin, eve, ""), Person: person,
			Bindings: ended}, ""},
		"of a person whom nobody knows": {token, auth.CreatorFacts{Token: stored(auth.ScopeAdmin, eve, ""),
			Bindings: operators}, ""},
		"a person": {signedOn, auth.CreatorFacts{Person: person, Bindings: operators}, `operator "site=x"; `},
		"a person in another group now": {signedOn, auth.CreatorFacts{Person: &auth.Person{Subject: "eve"},
			Bindings: operators}, ""},
	} {
		got := ""
		for _, g := range c.creator.Rights(c.facts, now) {
			got += fmt.Sprintf("%s %q; ", g.Role, g.Selection)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestCreatorFrom: work of the controller's own has none.
func TestCreatorFrom(t *testing.T) {
	t.Parallel()
	for want, ctx := range map[string]context.Context{
		`{}`:                   t.Context(),
		`{"file_token":"ci"}`:  auth.WithCaller(t.Context(), auth.Caller{Name: "ci"}),
		`{"token_id":"tok-1"}`: auth.WithCaller(t.Context(), auth.Caller{Name: "ci", TokenID: "tok-1"}),
		`{"identity":"person https://p eve","subject":"eve","groups":["web"]}`: auth.WithCaller(t.Context(),
			auth.Caller{Name: "Eve", Person: &auth.Person{Issuer: "https://p", Subject: "eve", Groups: []string{"web"}}}),
	} {
		got, err := json.Marshal(auth.CreatorFrom(ctx))
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
