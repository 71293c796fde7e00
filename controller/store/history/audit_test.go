package history_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestAnActorIsAnIssuerAndASubject: a person who is called admin is not the token of that name, nor another provider's
// person of that name.
func TestAnActorIsAnIssuerAndASubject(t *testing.T) {
	s := storetest.New(t)
	person := func(issuer string) access.Caller {
		return access.Caller{Name: "admin", Scope: access.ScopeOperate,
			Person: &access.Person{Issuer: issuer, Subject: "7", Name: "admin"}}
	}
	for _, c := range []access.Caller{{Name: "admin", Scope: access.ScopeAdmin}, person("https://a.test"),
		person("https://b.test")} {
		ctx := call.WithCaller(t.Context(), c)
		b := &baremetalv1.Budget{Name: "b", Domain: "fleet", AtOnce: 1}
		if _, err := s.Budgets.SetBudget(ctx, b, c.Name, storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for actor, want := range map[string]int{"admin": 3, person("https://a.test").Identity(): 1, "token admin": 0} {
		rows, err := s.History.ListAudit(t.Context(), history.AuditFilter{TargetID: "b", Actor: actor, Limit: 10})
		if err != nil || len(rows) != want {
			t.Errorf("%s: %d rows (%v), want %d", actor, len(rows), err, want)
		}
		for _, r := range rows {
			if want == 1 && r.GetActor() != "admin" {
				t.Errorf("the name beside it is %q", r.GetActor())
			}
		}
	}
}
