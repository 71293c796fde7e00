package previews_test

import (
	"fmt"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestValidateOnlyAnswersAsTheWorkDoesInMaintenance: on random fleets, a call with validate_only stores nothing. Before
// the machine leaves service it answers as the call does once the machine is in maintenance.
func TestValidateOnlyAnswersAsTheWorkDoesInMaintenance(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(storetest.Now().UnixNano())
	}
	counts := map[string]int{}
	t.Cleanup(func() { t.Logf("first seed %d, answers %v", first, counts) })
	for i := range (*pairs + machinesPerFleet - 1) / machinesPerFleet {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			w := newWorld(t, first+uint64(i))
			for _, m := range w.machines {
				counts[w.tryInMaintenance(m)]++
			}
		})
	}
	if counts["yes"] == 0 || counts["no"] == 0 {
		t.Errorf("a kind of answer did not occur: %v", counts)
	}
}

// tryInMaintenance compares a validation with the call after maintenance was entered. It returns the kind of answer.
func (w *world) tryInMaintenance(m *machine) string {
	w.T.Helper()
	if storetest.State(w.T, w.Store, m.id) == "deleted" {
		return "deleted before"
	}
	v := w.verb()
	before := w.record(m.id)
	validated := v.validate(m.id)
	if after := w.record(m.id); after != before {
		w.T.Errorf("%s on %s: the validation changed\n%s to\n%s", v.name, m.id, before, after)
	}
	about := fmt.Sprintf("%s on %s", v.name, w.about(m))
	if !v.entersMaintenance && !w.entered(m) {
		if validated == "" && storetest.Machine(w.T, w.Store, m.id).GetStatus().GetActiveOperationId() == "" {
			return "yes, and maintenance is refused"
		}
		return "maintenance is refused"
	}
	_, refused := v.call(m.id)
	if validated == "ROLLOUT_EMPTY" && refused != "" {
		return "no"
	}
	if validated != refused {
		w.T.Errorf("%s: the validation answers %q, the call in maintenance %q", about, validated, refused)
	}
	if refused != "" {
		return "no"
	}
	return "yes"
}

// entered brings a machine into maintenance, and reports whether it is there.
func (w *world) entered(m *machine) bool {
	w.T.Helper()
	in := func() bool {
		return storetest.Machine(w.T, w.Store, m.id).GetStatus().GetPhase() == pb.MachineStatus_MAINTENANCE
	}
	if in() {
		return true
	}
	op, err := w.Machines.EnterMaintenance(w.T.Context(),
		&pb.EnterMaintenanceRequest{MachineId: m.id, RequestId: "enter"})
	if err != nil {
		return false
	}
	w.drive(op.GetOperationId(), 0)
	return in()
}
