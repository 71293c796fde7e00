package fleet_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// A refusal for the phase advises to enter maintenance where that helps, and nowhere else.
func TestWrongPhaseSaysWhatToDo(t *testing.T) {
	for _, op := range fleet.OperationTypes() {
		for _, p := range phases {
			r := fleet.Admit(fleet.Facts{Phase: p}, op, false)
			if r == nil || r.Reason != "WRONG_PHASE" {
				continue
			}
			helps := fleet.Admit(fleet.Facts{Phase: fleet.Maintenance}, op, false) == nil
			if strings.Contains(r.Message, "call EnterMaintenance first") != (helps && p != fleet.Maintenance &&
				(op != fleet.ExitMaintenance || p != fleet.Ready)) {
				t.Errorf("%s in %s: %q, and maintenance would help: %t", op, p, r.Message, helps)
			}
		}
	}
}
