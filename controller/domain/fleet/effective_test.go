package fleet_test

import (
	"maps"
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

var nodeStates = []fleet.NodeState{
	fleet.Discovered, fleet.BootstrapIssued, fleet.Enrolling, fleet.Pending, fleet.Installing, fleet.InstallFailed,
	fleet.Installed,
	fleet.Active, fleet.Offline, fleet.Quarantined, fleet.Reprovision, fleet.Deprovisioning, fleet.Migrating,
	fleet.Draining,
	fleet.Retired, fleet.Removing, fleet.Deleted,
}

// everyMachine calls fn with each machine that the axes of the effective state allow.
func everyMachine(fn func(fleet.Facts)) int {
	flags := []fleet.ConditionType{
		fleet.RMA, fleet.RetiredFlag, fleet.NeedsIntervention, fleet.Provisioned, fleet.Reachable, fleet.OperationCanceled,
	}
	n := 0
	for _, phase := range phases {
		for _, state := range nodeStates {
			for bits := range 1 << (len(flags) + 4) {
				f := fleet.Facts{Phase: phase, NodeState: state, Deleted: state == fleet.Deleted,
					Conditions: map[fleet.ConditionType]bool{}}
				for i, c := range flags {
					f.Conditions[c] = bits>>i&1 == 1
				}
				rest := bits >> len(flags)
				f.ActiveOperation, f.ActiveWorkflow = rest&1 == 1, rest&2 == 2
				if rest&4 == 4 {
					f.UnresolvedCommand = "cmd-1"
				}
				if rest&8 == 8 {
					if f.Conditions[fleet.Reachable] {
						continue // true is known
					}
					f.Unknown = map[fleet.ConditionType]bool{fleet.Reachable: true}
				}
				fn(f)
				n++
			}
		}
	}
	return n
}

// usable is what a scheduler needs of a machine, said once more and without looking at effective states.
func usable(f fleet.Facts) bool {
	return f.Phase == fleet.Ready && f.NodeState == fleet.Active && !f.ActiveOperation && !f.ActiveWorkflow &&
		f.UnresolvedCommand == "" && f.Conditions[fleet.Provisioned] && f.Conditions[fleet.Reachable] &&
		!f.Conditions[fleet.NeedsIntervention] && !f.Conditions[fleet.RMA] && !f.Conditions[fleet.RetiredFlag] && !f.Deleted
}

func TestIdleMeansSchedulableAndNothingElseDoes(t *testing.T) {
	seen := map[fleet.EffectiveState]int{}
	n := everyMachine(func(f fleet.Facts) {
		state, attention := fleet.Evaluate(f)
		seen[state]++
		if (state == fleet.StateIdle) != state.Schedulable() || state.Schedulable() != usable(f) {
			t.Fatalf("%+v is %s, schedulable %t, usable %t", f, state, state.Schedulable(), usable(f))
		}
		if (state == fleet.StateAttention) != (attention.Reason != "") ||
			(attention.Reason == "") != (attention.Message == "") {
			t.Fatalf("%+v is %s with attention %+v", f, state, attention)
		}
		if attention.Reason != "" && baremetalv1.Reason_value[attention.Reason] == 0 {
			t.Fatalf("%s is not a reason of the API", attention.Reason)
		}
	})
	if n < 20_000 {
		t.Errorf("only %d machines", n)
	}
	for _, s := range fleet.EffectiveStates() {
		if seen[s] == 0 {
			t.Errorf("no machine is ever %s", s)
		}
	}
}

// A machine whose witness is silent is neither free nor accused: one in phase READY that lacks nothing else has the
// reason NOT_OBSERVED. Every other machine has the state that it would have without the silence.
func TestAnUnknownMachineIsNeitherIdleNorUnreachable(t *testing.T) {
	seen := 0
	everyMachine(func(f fleet.Facts) {
		state, attention := fleet.Evaluate(f)
		if !f.Unknown[fleet.Reachable] {
			if attention.Reason == fleet.AttentionNotObserved {
				t.Fatalf("%+v is observed, and %q", f, attention.Reason)
			}
			return
		}
		known := f
		known.Unknown = nil
		without, reason := fleet.Evaluate(known)
		if state != without || state == fleet.StateIdle {
			t.Fatalf("%+v is %s, and would be %s", f, state, without)
		}
		switch attention.Reason {
		case fleet.AttentionUnreachable, fleet.AttentionOffline:
			t.Fatalf("%+v is accused: %s", f, attention.Reason)
		case fleet.AttentionNotObserved:
			seen++
			if f.Phase != fleet.Ready || !f.Conditions[fleet.Provisioned] {
				t.Fatalf("%+v is %s", f, attention.Reason)
			}
		default:
			if attention != reason {
				t.Fatalf("%+v says %+v, and without the silence %+v", f, attention, reason)
			}
		}
	})
	if seen == 0 {
		t.Error("no machine is ever NOT_OBSERVED")
	}
}

// A machine whose disk holds no verified system is never green, and has that reason where no graver one is known.
func TestAMachineWithoutASystemIsNeverIdle(t *testing.T) {
	everyMachine(func(f fleet.Facts) {
		state, attention := fleet.Evaluate(f)
		if f.Conditions[fleet.Provisioned] {
			return
		}
		if state == fleet.StateIdle || state.Schedulable() {
			t.Fatalf("%+v is %s", f, state)
		}
		quiet := !f.Conditions[fleet.NeedsIntervention] && f.UnresolvedCommand == "" &&
			!slices.Contains(fleet.NeedsPerson(), f.NodeState)
		if state == fleet.StateAttention && quiet && attention.Reason != "NOT_PROVISIONED" {
			t.Fatalf("%+v says %q", f, attention.Reason)
		}
	})
}

// The table of model.md, said once more: the first row that holds is the answer.
func TestTheFirstRuleWins(t *testing.T) {
	rows := []struct {
		state fleet.EffectiveState
		holds func(fleet.Facts) bool
	}{
		{fleet.StateBlocked, func(f fleet.Facts) bool {
			return f.Conditions[fleet.RMA] || f.Conditions[fleet.RetiredFlag] ||
				f.NodeState == fleet.Retired || f.NodeState == fleet.Removing || f.NodeState == fleet.Deleted
		}},
		{fleet.StateAttention, func(f fleet.Facts) bool {
			return f.Conditions[fleet.NeedsIntervention] || f.UnresolvedCommand != "" ||
				f.NodeState == fleet.Quarantined || f.NodeState == fleet.InstallFailed
		}},
		{fleet.StateBusy, func(f fleet.Facts) bool {
			return f.ActiveOperation || f.ActiveWorkflow || slices.Contains([]fleet.NodeState{
				fleet.Enrolling, fleet.Installing, fleet.Reprovision, fleet.Deprovisioning, fleet.Migrating, fleet.Draining,
			}, f.NodeState)
		}},
		{fleet.StateMaintenanceIdle, func(f fleet.Facts) bool { return f.Phase == fleet.Maintenance }},
		{fleet.StateNew, func(f fleet.Facts) bool { return f.Phase == fleet.FactoryReady }},
		{fleet.StateAttention, func(f fleet.Facts) bool { return !usable(f) }},
		{fleet.StateIdle, usable},
	}
	everyMachine(func(f fleet.Facts) {
		for _, r := range rows {
			if !r.holds(f) {
				continue
			}
			if got := fleet.Effective(f); got != r.state {
				t.Fatalf("%+v is %s, want %s", f, got, r.state)
			}
			return
		}
		t.Fatalf("no rule holds of %+v", f)
	})
}

// TestAMachineInServiceIsUsableButForItsWork: one that is drained or quarantined still runs what it ran, whatever it
// needs a person for. No other state of a machine changes what it counts as.
func TestAMachineInServiceIsUsableButForItsWork(t *testing.T) {
	in := 0
	everyMachine(func(f fleet.Facts) {
		before, free := f.Conditions[fleet.NeedsIntervention], f
		free.ActiveOperation, free.ActiveWorkflow = false, false
		want := usable(free)
		if f.NodeState == fleet.Draining || f.NodeState == fleet.Quarantined {
			free.NodeState = fleet.Active
			free.Conditions = maps.Clone(f.Conditions)
			free.Conditions[fleet.NeedsIntervention] = false
			want = usable(free)
		}
		if got := fleet.InService(f); got != want {
			t.Fatalf("in service %t, want %t: %+v", got, want, f)
		}
		if want {
			in++
		}
		if f.Conditions[fleet.NeedsIntervention] != before {
			t.Fatalf("the question changed the conditions of %+v", f)
		}
	})
	if in == 0 {
		t.Error("no machine is in service")
	}
}
