package machine

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
)

// TestAWatchRemembersABoundedNumber tests a watch of more machines than it remembers: LEFT is sent for each that the
// client has, and may be sent for one that it does not have.
func TestAWatchRemembersABoundedNumber(t *testing.T) {
	terms, err := query.Machines.Parse("rack=r1")
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{filter: machinefilter.Of(terms), has: map[string]bool{}}
	in := func(id, rack string) *baremetalv1.Machine {
		return &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Rack: rack}}
	}
	if kind := w.judge(in("never", "r2")); kind != baremetalv1.MachineEvent_KIND_UNSPECIFIED {
		t.Errorf("a machine that the client never had: %s", kind)
	}
	for i := range mostKnown + 10 {
		w.note(in(fmt.Sprint(i), "r1"), true)
	}
	if len(w.has) > mostKnown {
		t.Errorf("%d machines are remembered", len(w.has))
	}
	for _, id := range []string{"0", fmt.Sprint(mostKnown + 9)} {
		if kind := w.judge(in(id, "r2")); kind != baremetalv1.MachineEvent_LEFT {
			t.Errorf("%s leaves as %s", id, kind)
		}
	}
}
