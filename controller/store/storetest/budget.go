package storetest

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
)

func SetBudget(t *testing.T, s *store.Store, b *baremetalv1.Budget) {
	t.Helper()
	if _, err := s.Budgets.SetBudget(t.Context(), b, "tester", Now()); err != nil {
		t.Fatal(err)
	}
}

func AdmitDestructive(t *testing.T, s *store.Store, want int) {
	t.Helper()
	n, _, err := s.Budgets.AdmitDestructive(t.Context(), Now())
	if err != nil || n != want {
		t.Fatalf("admitted %d, %v; want %d", n, err, want)
	}
}
