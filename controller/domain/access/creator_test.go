package access_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
)

// TestRightsOfACreator: rights that were revoked, removed or narrowed no longer count; merely expired ones do.
func TestRightsOfACreator(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const eve = "person https://p eve"
	person := &access.Person{Subject: "eve", Groups: []string{"web"}}
	file, token := access.Creator{FileToken: "ci"}, access.Creator{TokenID: "tok-1"}
	signedOn := access.Creator{Identity: eve, Subject: "eve", Groups: []string{"web"}}
	stored := func(scope access.Scope, owner, selection string) *access.StoredToken {
		return &access.StoredToken{Scope: scope, Owner: owner, Selection: selection, ExpiresAt: now.Add(-time.Hour)}
	}
	operators := []access.RoleBinding{{ID: "b", Role: access.Operator, Group: "web", Selection: "site=x"}}
	ended := []access.RoleBinding{{ID: "b", Role: access.Operator, Group: "web", ExpiresAt: now}}
	for name, c := range map[string]struct {
		creator access.Creator
		facts   access.CreatorFacts
		want    string
	}{
		"a token of the file": {file, access.CreatorFacts{File: []access.FileToken{{Name: "ci", Scope: access.ScopeOperate,
			Selection: "site=y"}}}, `operator "site=y"; `},
		"one that the file has no more": {file, access.CreatorFacts{File: []access.FileToken{{Name: "other",
			Scope: access.ScopeAdmin}}}, ""},
		"a token that has expired": {token, access.CreatorFacts{Token: stored(access.ScopeAdmin, "token ci", "site=y")},
			`admin "site=y"; `},
		"a token that was revoked": {token, access.CreatorFacts{Bindings: operators, Person: person}, ""},
		"the token of a person": {token, access.CreatorFacts{Token: stored(access.ScopeAdmin, eve, "rack=1"), Person: person,
			Bindings: operators}, `operator "site=x, rack=1"; `},
		"of a person without a role": {token, access.CreatorFacts{Token: stored(access.ScopeAdmin, eve, ""), Person: person,
			Bindings: ended}, ""},
		"of a person whom nobody knows": {token, access.CreatorFacts{Token: stored(access.ScopeAdmin, eve, ""),
			Bindings: operators}, ""},
		"a person": {signedOn, access.CreatorFacts{Person: person, Bindings: operators}, `operator "site=x"; `},
		"a person in another group now": {signedOn, access.CreatorFacts{Person: &access.Person{Subject: "eve"},
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

// TestCreatorOfACaller: work of the controller's own has none.
func TestCreatorOfACaller(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]access.Caller{
		`{}`:                   {},
		`{"file_token":"ci"}`:  {Name: "ci"},
		`{"token_id":"tok-1"}`: {Name: "ci", TokenID: "tok-1"},
		`{"identity":"person https://p eve","subject":"eve","groups":["web"]}`: {Name: "Eve",
			Person: &access.Person{Issuer: "https://p", Subject: "eve", Groups: []string{"web"}}},
	} {
		got, err := json.Marshal(c.Creator())
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
