package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// book knows people by their tokens, as a provider would.
type book map[string]access.Person

func (b book) Verify(_ context.Context, token string, _ bool) (access.Person, error) {
	if p, ok := b[token]; ok {
		return p, nil
	}
	return access.Person{}, failure.Unauthenticated(ReasonBearerInvalid, "nobody's")
}

func (m *memory) bind(bindings ...access.RoleBinding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bindings, m.version = bindings, m.version+1
}

// withPeople are tokens that people sign on with, and have read what there is.
func withPeople(t *testing.T, v Verifier) (*Tokens, *memory) {
	t.Helper()
	tokens, db, _ := followed(t)
	tokens.SignOn(v, DefaultLastSignOn)
	testkit.Eventually(t, 5*time.Second, func() bool {
		tokens.mu.Lock()
		defer tokens.mu.Unlock()
		return tokens.people.read
	}, "the roles are not read")
	return tokens, db
}

func ada(groups ...string) access.Person {
	now := time.Now()
	return access.Person{Issuer: "https://p.test", Subject: "1", Name: "Ada", Groups: groups,
		IssuedAt: now.Add(-time.Minute), ExpiresAt: now.Add(time.Hour), Session: "ss-1", Lasting: true}
}

func TestRolesFollowGroups(t *testing.T) {
	tokens, db := withPeople(t, book{"a.d.a": ada("ops"), "e.v.e": {Issuer: "https://p.test", Subject: "2", Name: "Eve",
		ExpiresAt: time.Now().Add(time.Hour), Session: "ss-2"}})
	if err := tokens.meet(t.Context(), "a.d.a", true); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.authenticate("a.d.a", access.ScopeRead); failure.ReasonOf(err) != access.ReasonNoRole {
		t.Fatalf("without a role: %v", err)
	}
	if c, err := tokens.authenticate("a.d.a", access.ScopeCaller); err != nil || c.Name != "Ada" {
		t.Fatalf("who am I: %v, %v", c, err)
	}
	db.bind(access.RoleBinding{ID: "rb-1", Role: access.Operator, Group: "ops"},
		access.RoleBinding{ID: "rb-2", Role: access.Admin, Group: "ops", ExpiresAt: time.Now().Add(-time.Second)},
		access.RoleBinding{ID: "rb-3", Role: access.Admin, Subject: "2"})
	testkit.Eventually(t, 5*time.Second, func() bool {
		c, err := tokens.authenticate("a.d.a", access.ScopeOperate)
		return err == nil && c.Scope == access.ScopeOperate
	}, "the role does not count")
	if _, err := tokens.authenticate("a.d.a", access.ScopeAdmin); failure.ReasonOf(err) != access.ReasonScopeTooSmall {
		t.Errorf("an expired role: %v", err)
	}
	if _, err := tokens.authenticate("a.d.a", access.ScopeApprove); failure.ReasonOf(err) != access.ReasonScopeTooSmall {
		t.Errorf("an operator approves: %v", err)
	}
	if err := tokens.meet(t.Context(), "e.v.e", true); err != nil {
		t.Fatal(err)
	}
	if c, err := tokens.authenticate("e.v.e", access.ScopeApprove); err != nil || c.Scope != access.ScopeAdmin {
		t.Errorf("by subject: %v, %v", c, err)
	}
	if err := tokens.meet(t.Context(), "x.y.z", true); failure.ReasonOf(err) != ReasonBearerInvalid {
		t.Errorf("nobody's token: %v", err)
	}
}

func TestAStreamEndsWithTheRole(t *testing.T) {
	tokens, db := withPeople(t, book{"a.d.a": ada("ops")})
	if err := tokens.meet(t.Context(), "a.d.a", true); err != nil {
		t.Fatal(err)
	}
	db.bind(access.RoleBinding{ID: "rb-1", Role: access.Viewer, Group: "ops"})
	var ctx context.Context
	testkit.Eventually(t, 5*time.Second, func() bool {
		var err error
		var done func()
		ctx, _, done, err = tokens.admit( //nolint:fatcontext // it is let in once
			t.Context(), "a.d.a", access.ScopeRead)
		if err == nil {
			t.Cleanup(done)
		}
		return err == nil
	}, "the stream is not let in")
	db.bind(access.RoleBinding{ID: "rb-2", Role: access.Viewer, Group: "ops", Selection: "site=a"})
	select {
	case <-ctx.Done():
	case <-time.After(testkit.Patience):
		t.Fatal("the stream goes on with roles that are gone")
	}
	if cause := context.Cause(ctx); failure.ReasonOf(cause) != ReasonRolesChanged {
		t.Errorf("cause: %v", cause)
	}
}

func TestARevokedSessionStaysRevoked(t *testing.T) {
	loose := ada("ops")
	loose.Session, loose.Lasting = "ss-3", false
	later := loose
	later.IssuedAt = time.Now().Add(time.Minute)
	renewed := ada("ops")
	renewed.IssuedAt = time.Now().Add(time.Minute)
	tokens, db := withPeople(t, book{"a.d.a": ada("ops"), "a.d.b": renewed, "l.o.o": loose, "l.o.p": later})
	for _, secret := range []string{"a.d.a", "a.d.b", "l.o.o", "l.o.p"} {
		if err := tokens.meet(t.Context(), secret, true); err != nil {
			t.Fatal(err)
		}
	}
	db.mu.Lock()
	db.revoked = map[string]time.Time{"ss-1": time.Now(), "ss-3": time.Now()}
	db.mu.Unlock()
	db.bind(access.RoleBinding{ID: "rb-1", Role: access.Viewer, Group: "ops"})
	testkit.Eventually(t, 5*time.Second, func() bool {
		_, err := tokens.authenticate("l.o.p", access.ScopeRead)
		return err == nil // what was issued after the revocation, where the provider names no session
	}, "the later token is not let in")
	for _, secret := range []string{"a.d.a", "a.d.b", "l.o.o"} {
		if _, err := tokens.authenticate(secret, access.ScopeRead); failure.ReasonOf(err) != ReasonSignOnRevoked {
			t.Errorf("%s: %v", secret, err)
		}
	}
}

func TestASignOnIsRecordedOnce(t *testing.T) {
	tokens, db := withPeople(t, book{"a.d.a": ada()})
	if err := tokens.meet(t.Context(), "a.d.a", true); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c, err := tokens.authenticate("a.d.a", access.ScopeCaller)
		if err != nil {
			t.Fatal(err)
		}
		c.Address = "192.0.2." + string(rune('1'+i))
		tokens.saw(c)
	}
	testkit.Eventually(t, 5*time.Second, func() bool {
		db.mu.Lock()
		defer db.mu.Unlock()
		return len(db.sessions) > 0
	}, "the sign-on is not recorded")
	db.mu.Lock()
	defer db.mu.Unlock()
	if s := db.sessions[0]; !s.New || s.Address != "192.0.2.1" || s.Person.Name != "Ada" {
		t.Errorf("recorded: %+v", s)
	}
}

func TestAnEndedTokenSaysSo(t *testing.T) {
	tokens, _, _ := followed(t)
	old := ada()
	old.ExpiresAt = time.Now().Add(-time.Second)
	tokens.SignOn(book{"a.d.a": old}, DefaultLastSignOn)
	if err := tokens.meet(t.Context(), "a.d.a", true); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.authenticate("a.d.a", access.ScopeCaller); failure.ReasonOf(err) != ReasonSignOnExpired {
		t.Error(err)
	}
}

// A controller that has just started returns that as the reason, and removes no roles.
func TestRolesThatAreNotReadYet(t *testing.T) {
	tokens := &Tokens{clock: clock.Real(), people: people{verifier: book{"a.d.a": ada()}}}
	if err := tokens.meet(t.Context(), "a.d.a", true); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.authenticate("a.d.a", access.ScopeRead); failure.ReasonOf(err) != "DATABASE_UNAVAILABLE" {
		t.Error(err)
	}
}

func TestIdentities(t *testing.T) {
	one, two := ada(), ada()
	two.Subject = "2"
	a, _ := access.PersonCaller(one, nil, access.ScopeCaller)
	b, _ := access.PersonCaller(two, nil, access.ScopeCaller)
	hers := access.Caller{Name: "ci", Owner: one.Identity()}
	switch {
	case a.Name != b.Name || a.Identity() == b.Identity():
		t.Error("two people of one name are one")
	case hers.Identity() != a.Identity():
		t.Error("a token is not whoever made it")
	case access.Caller{Name: "Ada"}.Identity() == a.Identity():
		t.Error("a token of a person's name is that person")
	}
}

func TestPreAuthorizeAsksNoProvider(t *testing.T) {
	tokens, _, _ := followed(t)
	tokens.SignOn(waiting{}, DefaultLastSignOn)
	if err := tokens.meet(t.Context(), "a.b.c", false); !errors.Is(err, ErrWouldWait) {
		t.Error(err)
	}
	if err := tokens.meet(t.Context(), strings.Repeat("x", 40), false); err != nil {
		t.Errorf("another token: %v", err)
	}
}

type waiting struct{}

func (waiting) Verify(context.Context, string, bool) (access.Person, error) {
	return access.Person{}, ErrWouldWait
}

// TestStrangersMakeFewRows: refused sign-ons from many addresses share a bounded number of rows in the audit log.
func TestStrangersMakeFewRows(t *testing.T) {
	tokens, db, _ := followed(t)
	for i := range 500 {
		tokens.RefusedSignOn("", fmt.Sprintf("192.0.2.%d", i), "BEARER_INVALID")
	}
	tokens.RefusedSignOn("Eve", "192.0.2.9", access.ReasonNoRole)
	testkit.Eventually(t, 5*time.Second, func() bool {
		db.mu.Lock()
		defer db.mu.Unlock()
		eve, all := false, int64(0)
		for key, count := range db.refusals {
			all += count
			eve = eve || key.actor == "Eve"
		}
		return eve && all == 501
	}, "the refusals are not counted")
	db.mu.Lock()
	defer db.mu.Unlock()
	if n := len(db.refusals); n > 2*(maxUnknown+2) { // a minute may begin meanwhile
		t.Errorf("%d rows", n)
	}
}
