package auth

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestATokenIsWorthNoMoreThanItsMaker draws a person's roles and a token that the person has made: what the token opens
// on a machine, the person could do there too.
func TestATokenIsWorthNoMoreThanItsMaker(t *testing.T) {
	t.Parallel()
	selections := []string{"", "site=a", "site=b", "labels.team=x"}
	needs := []access.Scope{access.ScopeRead, access.ScopeOperate, access.ScopeAdmin, access.ScopeReport,
		access.ScopeApprove, access.ScopeCaller}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		p := people{lastSignOn: time.Hour, peopleRead: peopleRead{makers: map[string]access.Person{}}}
		who := access.Person{Issuer: "i", Subject: "s", Name: "Ada", IssuedAt: now}
		p.makers[who.Identity()] = who
		for range rapid.IntRange(0, 4).Draw(t, "roles") {
			p.bindings = append(p.bindings, access.RoleBinding{Subject: "s",
				Role:      rapid.SampledFrom(access.Roles()).Draw(t, "role"),
				Selection: rapid.SampledFrom(selections).Draw(t, "selection")})
		}
		tok := access.StoredToken{Name: "ci", Owner: who.Identity(),
			Scope:     rapid.SampledFrom(needs[:4]).Draw(t, "scope"),
			Selection: rapid.SampledFrom(selections).Draw(t, "narrowed to")}
		grants, err := p.worth(tok, now)
		if err != nil && failure.ReasonOf(err) != access.ReasonNoRole {
			t.Fatal(err)
		}
		// A machine, by the selections that it is in.
		in := rapid.SliceOfDistinct(rapid.SampledFrom(selections[1:]), rapid.ID[string]).Draw(t, "machine")
		need := rapid.SampledFrom(needs).Draw(t, "need")
		opens := func(g access.Grant) bool {
			for _, one := range splitSelection(g.Selection) {
				if !slices.Contains(in, one) {
					return false
				}
			}
			return g.Role.Covers(need)
		}
		if slices.ContainsFunc(grants, opens) && !slices.ContainsFunc(who.Grants(p.bindings, now), opens) {
			t.Fatalf("the token opens %v on a machine of %v by %v; its maker has %v", need, in, grants, p.bindings)
		}
		own := access.Grant{Role: tok.Scope.Role(), Selection: tok.Selection}
		if slices.ContainsFunc(grants, opens) && !opens(own) {
			t.Fatalf("the token opens %v on a machine of %v by %v; it was made with %v", need, in, grants, own)
		}
	})
}

// splitSelection returns the parts of a selection that was put together of drawn ones.
func splitSelection(s string) (out []string) {
	for _, part := range []string{"site=a", "site=b", "labels.team=x"} {
		if s == part || len(s) > len(part) && (s[:len(part)] == part || s[len(s)-len(part):] == part) {
			out = append(out, part)
		}
	}
	return out
}

// TestATokenEndsWithItsMakersRole: the token of an admin opens nothing any more once the role is taken away, and its
// streams end.
func TestATokenEndsWithItsMakersRole(t *testing.T) {
	t.Parallel()
	tokens, db := withPeople(t, book{})
	who := ada("ops")
	secret, _ := NewToken()
	db.mu.Lock()
	db.makers = map[string]access.Person{who.Identity(): who}
	db.mu.Unlock()
	db.set(
		access.StoredToken{ID: "tk-1", Name: "ci", Scope: access.ScopeAdmin, Hash: sha256.Sum256([]byte(secret)),
			Owner: who.Identity(), ExpiresAt: time.Now().Add(time.Hour)},
	)
	answers := func(reason string) func() bool {
		return func() bool {
			_, err := tokens.authenticate(secret, access.ScopeAdmin)
			return failure.ReasonOf(err) == reason
		}
	}
	testkit.Eventually(t, 5*time.Second, answers(access.ReasonNoRole),
		"a token of a person without a role opens something")
	db.bind(access.RoleBinding{ID: "rb-1", Role: access.Admin, Group: "ops"})
	testkit.Eventually(t, 5*time.Second, answers(""), "the token of an admin is refused")
	ctx, _, done, err := tokens.admit(t.Context(), secret, access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	db.bind(access.RoleBinding{ID: "rb-2", Role: access.Viewer, Group: "ops"})
	testkit.Eventually(t, 5*time.Second, answers(access.ReasonScopeTooSmall), "the token outlives its maker's role")
	testkit.Eventually(t, 5*time.Second, func() bool { return ctx.Err() != nil }, "the stream goes on")
	if _, err := tokens.authenticate(secret, access.ScopeRead); err != nil {
		t.Errorf("as a viewer: %v", err)
	}
	who.IssuedAt = time.Now().Add(-25 * time.Hour)
	db.mu.Lock()
	db.makers = map[string]access.Person{who.Identity(): who}
	db.mu.Unlock()
	db.bind(access.RoleBinding{ID: "rb-1", Role: access.Admin, Group: "ops"})
	testkit.Eventually(t, 5*time.Second, answers(ReasonSignOnExpired), "the roles of long ago still count")
}

// TestASelectionOfAToken: a token of the database or of the file that has a selection is held to it, and one that
// reports reads nothing.
func TestASelectionOfAToken(t *testing.T) {
	t.Parallel()
	tokens, db := withPeople(t, book{})
	ops, report := "secret-1", "secret-2"
	ends := time.Now().Add(time.Hour)
	db.set(
		access.StoredToken{
			ID:        "tk-1",
			Name:      "berlin",
			Scope:     access.ScopeOperate,
			Hash:      sha256.Sum256([]byte(ops)),
			Selection: "site=berlin",
			ExpiresAt: ends,
		},
		access.StoredToken{
			ID:        "tk-2",
			Name:      "pxe",
			Scope:     access.ScopeReport,
			Hash:      sha256.Sum256([]byte(report)),
			Selection: "machine_id=m-1",
			ExpiresAt: ends,
		},
	)
	var c access.Caller
	testkit.Eventually(t, 5*time.Second, func() (ok bool) {
		var err error
		c, err = tokens.authenticate(ops, access.ScopeOperate)
		return err == nil
	}, "the token is not known")
	within, restricted := c.Within()
	if !restricted || !slices.Equal(within, []string{"site=berlin"}) || c.Scope != access.ScopeRead {
		t.Errorf("%v %v, scope %v", within, restricted, c.Scope)
	}
	if in := c.In(within); in.Scope != access.ScopeOperate {
		t.Errorf("on its machines it has scope %v", in.Scope)
	}
	for need, want := range map[access.Scope]string{access.ScopeReport: "", access.ScopeRead: access.ReasonScopeTooSmall,
		access.ScopeCaller: access.ReasonScopeTooSmall, access.ScopeOperate: access.ReasonScopeTooSmall} {
		c, err := tokens.authenticate(report, need)
		if _, restricted := c.Within(); failure.ReasonOf(err) != want ||
			err == nil && (!restricted || c.Scope != access.ScopeReport) {
			t.Errorf("a token that reports, need %v: %v, %+v", need, err, c)
		}
	}
	tok, err := parseToken([]string{"berlin", "operate", HashToken("x"), "site=berlin,", "rack=r1"})
	if err != nil || tok.selection != "site=berlin, rack=r1" && tok.selection != "site=berlin,rack=r1" {
		t.Errorf("%+v, %v", tok, err)
	}
	if _, err := parseToken([]string{"berlin", "operate", HashToken("x"), "berlin"}); err == nil {
		t.Error("a selection that is none is taken")
	}
}
