package machine_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// Lists, filters and gauges have one answer about every machine that there can be.
func TestListsFiltersAndGaugesAgreeOnEveryMachine(t *testing.T) {
	r := publictest.NewRig(t)
	total := storetest.EveryMachine(t, r.Store)
	states := map[string]pb.MachineStatus_EffectiveState{}
	shown := map[string]int{}
	for token := ""; ; {
		p, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range p.GetMachines() {
			st := m.GetStatus()
			states[m.GetMachineId()] = st.GetEffectiveState()
			shown[st.GetEffectiveState().String()]++
			if st.GetSchedulable() != (st.GetEffectiveState() == pb.MachineStatus_IDLE) {
				t.Fatalf("%s is %s, schedulable %t", m.GetMachineId(), st.GetEffectiveState(), st.GetSchedulable())
			}
		}
		if token = p.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(states) != total {
		t.Fatalf("%d of %d machines listed", len(states), total)
	}
	for _, want := range fleet.EffectiveStates() {
		seen := map[string]bool{}
		for _, id := range ids(r, "effective_state="+string(want), 1000) {
			if seen[id] || states[id].String() != string(want) {
				t.Fatalf("%s: %s is %s, seen before %t", want, id, states[id], seen[id])
			}
			seen[id] = true
		}
		if len(seen) != shown[string(want)] || len(seen) == 0 {
			t.Errorf("the filter finds %d machines that are %s, the list shows %d", len(seen), want, shown[string(want)])
		}
	}
	counts, err := r.Store.Machines.CountMachines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for c, n := range counts {
		counted[c.Effective] += n
	}
	counted[string(fleet.StateMaintenanceIdle)] = counted["MAINTENANCE"]
	for state, n := range shown {
		if counted[state] != n {
			t.Errorf("the gauges count %d machines that are %s, the list shows %d", counted[state], state, n)
		}
	}
}
