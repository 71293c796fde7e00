package commandspec

import (
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// TestAnActionWithoutFieldsComesFromItsDeclaration holds that one with fields is never sent empty by mistake.
func TestAnActionWithoutFieldsComesFromItsDeclaration(t *testing.T) {
	t.Parallel()
	for k, want := range map[kind.Kind]func(*fleetv1.CommandSpec) bool{
		kind.ResetDevices: func(s *fleetv1.CommandSpec) bool { return s.GetResetDevices() != nil },
		kind.BMCPassword:  func(s *fleetv1.CommandSpec) bool { return s.GetBmcPassword() != nil },
		kind.WaitForAgent: func(s *fleetv1.CommandSpec) bool { return s.GetAction() == nil },
	} {
		spec := &fleetv1.CommandSpec{}
		if err := setEmptyAction(spec, k); err != nil || !want(spec) {
			t.Errorf("%s: %v, %v", k, spec, err)
		}
	}
	if err := setEmptyAction(&fleetv1.CommandSpec{}, kind.Erase); err == nil {
		t.Error("an erase is sent without its disks")
	}
}
