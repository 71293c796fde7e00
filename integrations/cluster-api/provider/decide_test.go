package provider

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
)

func machine(id string, state baremetalv1.MachineStatus_EffectiveState, reason string) *baremetalv1.Machine {
	phase := baremetalv1.MachineStatus_READY
	if state == baremetalv1.MachineStatus_MAINTENANCE_IDLE {
		phase = baremetalv1.MachineStatus_MAINTENANCE
	}
	return &baremetalv1.Machine{
		MachineId: id,
		Labels:    map[string]string{label.Offered: label.ClusterAPI},
		Status: &baremetalv1.MachineStatus{EffectiveState: state,
			AttentionReason: reason, Phase: phase},
	}
}

// otherwiseTaken are why a machine is not Cluster API's to take, whatever its state.
var otherwiseTaken = map[string]func(*baremetalv1.Machine){
	"with a claim":             func(m *baremetalv1.Machine) { m.Labels[ClaimLabel] = "x" },
	"that nobody offered":      func(m *baremetalv1.Machine) { delete(m.Labels, label.Offered) },
	"offered to another tool":  func(m *baremetalv1.Machine) { m.Labels[label.Offered] = "opentofu" },
	"that another tool owns":   func(m *baremetalv1.Machine) { m.Labels[label.Owner] = "opentofu" },
	"that is meant for others": func(m *baremetalv1.Machine) { m.Spec = &baremetalv1.MachineSpec{TargetClusterRef: "c"} },
	"of a customer's cluster": func(m *baremetalv1.Machine) {
		m.Status.Conditions = []*baremetalv1.Condition{{Type: "InCustomerCluster", Status: true, Known: true}}
	},
}

func TestFree(t *testing.T) {
	for state, want := range map[baremetalv1.MachineStatus_EffectiveState]bool{
		baremetalv1.MachineStatus_NEW: true, baremetalv1.MachineStatus_IDLE: true,
		baremetalv1.MachineStatus_BUSY: false, baremetalv1.MachineStatus_MAINTENANCE_IDLE: false,
		baremetalv1.MachineStatus_BLOCKED: false, baremetalv1.MachineStatus_ATTENTION: false,
		baremetalv1.MachineStatus_EFFECTIVE_STATE_UNSPECIFIED: false,
	} {
		m := machine("m", state, "NODE_OFFLINE")
		if free(m) != want {
			t.Errorf("%v is free: %t", state, !want)
		}
		for name, take := range otherwiseTaken {
			other := proto.CloneOf(m)
			take(other)
			if free(other) {
				t.Errorf("%v %s is free", state, name)
			}
		}
	}
	m := machine("m", baremetalv1.MachineStatus_IDLE, "")
	if m.Labels[label.Owner] = label.ClusterAPI; !free(m) {
		t.Error("a machine that Cluster API owns is not free")
	}
	if !free(machine("m", baremetalv1.MachineStatus_ATTENTION, "NOT_PROVISIONED")) {
		t.Error("a machine that lacks a system is not free")
	}
}

// TestChoose: every process chooses alike, whatever the order of its list, and objects spread over the machines.
func TestChoose(t *testing.T) {
	var all []*baremetalv1.Machine
	for i := range 20 {
		all = append(all, machine(fmt.Sprint("m-", i), baremetalv1.MachineStatus_IDLE, ""))
	}
	all = append(all, machine("busy", baremetalv1.MachineStatus_BUSY, ""))
	chosen := map[string]bool{}
	for i := range 100 {
		id := fmt.Sprint("uid-", i)
		got := choose(all, id)
		slices.Reverse(all)
		if again := choose(all, id); again != got {
			t.Fatalf("%s chooses %v and %v", id, got, again)
		}
		chosen[got.GetMachineId()] = true
	}
	if len(chosen) < 15 || chosen["busy"] {
		t.Errorf("100 objects choose among %v", chosen)
	}
	if choose(all[:0], "x") != nil {
		t.Error("there is a choice among none")
	}
}

func op(kind baremetalv1.Operation_OperationType, phase baremetalv1.Operation_Phase) *baremetalv1.Operation {
	o := &baremetalv1.Operation{OperationId: "op-1", Type: kind, Phase: phase}
	if phase == baremetalv1.Operation_FAILED {
		o.Error = &baremetalv1.ErrorStatus{Code: "STEP_TIMEOUT"}
	}
	return o
}

const (
	running = baremetalv1.Operation_RUNNING
	done    = baremetalv1.Operation_SUCCEEDED
	broken  = baremetalv1.Operation_FAILED
	reimage = baremetalv1.Operation_REIMAGE
	into    = baremetalv1.Operation_ENTER_MAINTENANCE
	out     = baremetalv1.Operation_EXIT_MAINTENANCE
)

func mayRetry(o *baremetalv1.Operation) *baremetalv1.Operation {
	o.Error.Retryable = true
	return o
}

func installs(ops ...*baremetalv1.Operation) []*baremetalv1.Operation { return ops }

func TestNextInstall(t *testing.T) {
	idle := machine("m", baremetalv1.MachineStatus_IDLE, "")
	in := op(into, done)
	again := mayRetry(op(reimage, broken))
	for _, c := range []struct {
		name, step, reason string
		m                  *baremetalv1.Machine
		w                  work
	}{
		{"nothing yet", stepEnter, "", idle, work{}},
		{"on the way", stepWait, ReasonInstalling, idle, work{enter: op(into, running)}},
		{"not let in", stepWait, "STEP_TIMEOUT", idle, work{enter: op(into, broken)}},
		{"in maintenance", installStep(1), "", idle, work{enter: in}},
		{"installing", stepWait, ReasonInstalling, idle, work{enter: in, installs: installs(op(reimage, running))}},
		{"failed for good", stepWait, "STEP_TIMEOUT", idle, work{enter: in, installs: installs(op(reimage, broken))}},
		{"failed once", installStep(2), "", idle, work{enter: in, installs: installs(again)}},
		{"failed too often", stepWait, "STEP_TIMEOUT", idle, work{enter: in, installs: installs(again, again, again)}},
		{"canceled", stepWait, "CANCELED", idle,
			work{enter: in, installs: installs(op(reimage, baremetalv1.Operation_CANCELED))}},
		{"installed", stepExit, "", idle, work{enter: in, installs: installs(again, op(reimage, done))}},
		{"verified", stepInstalled, "", idle, work{enter: in, installs: installs(op(reimage, done)), exit: op(out, done)}},
		{"waits for somebody", stepWait, "NODE_NOT_VERIFIED",
			machine("m", baremetalv1.MachineStatus_ATTENTION, "NODE_NOT_VERIFIED"),
			work{enter: in, installs: installs(op(reimage, done)), exit: op(out, done)}},
	} {
		if d := nextInstall(c.m, c.w); d.step != c.step || d.reason != c.reason {
			t.Errorf("%s: %q %q, want %q %q", c.name, d.step, d.reason, c.step, c.reason)
		}
	}
}

func TestNextRelease(t *testing.T) {
	idle := machine("m", baremetalv1.MachineStatus_IDLE, "")
	kept := machine("m", baremetalv1.MachineStatus_MAINTENANCE_IDLE, "")
	in, served := op(into, done), op(out, done)
	used := work{enter: in, exit: served, installs: installs(op(reimage, done))}
	with := func(change func(*work)) work {
		w := used
		change(&w)
		return w
	}
	flow := func(s baremetalv1.Workflow_State) *baremetalv1.Workflow {
		w := &baremetalv1.Workflow{State: s, Reason: "STEP_TIMEOUT"}
		if s == baremetalv1.Workflow_COMPLETED || s == baremetalv1.Workflow_CANCELLED {
			w.EndedAt = timestamppb.Now()
		}
		return w
	}
	for _, c := range []struct {
		name, step, reason string
		erase              bool
		m                  *baremetalv1.Machine
		w                  work
	}{
		{"never used", stepRelease, "", true, idle, work{}},
		{"as it is", stepRelease, "", false, idle, used},
		{"an operator's maintenance stays", stepRelease, "", false, kept, used},
		{"still installing", stepCancel, ReasonReleasing, false, kept,
			work{enter: in, installs: installs(op(reimage, running))}},
		{"an installation that failed", stepReturn, "", false, kept,
			work{enter: in, installs: installs(op(reimage, broken))}},
		{"still on the way back", stepWait, ReasonReleasing, false, kept, work{enter: in, back: op(out, running)}},
		{"erased: into maintenance", stepLeave, "", true, idle, used},
		{"erased: an operator's maintenance will do", stepErase, "", true, kept, used},
		{"erased: in maintenance", stepErase, "", true, kept, with(func(w *work) { w.leave = in })},
		{"erased: under way", stepWait, ReasonErasing, true, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_RUNNING) })},
		{"erased: failed", stepWait, "STEP_TIMEOUT", true, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_FAILED_RETRYABLE) })},
		{"erased: canceled", stepWait, "STEP_TIMEOUT", true, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_CANCELLED) })},
		{"not to be erased after all", stepReturn, "", false, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_CANCELLED) })},
		{"no longer to be erased", stepAbandon, "STEP_TIMEOUT", false, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_FAILED_RETRYABLE) })},
		{"erased", stepReturn, "", true, kept,
			with(func(w *work) { w.leave, w.erasure = in, flow(baremetalv1.Workflow_COMPLETED) })},
		{"erased in an operator's maintenance", stepRelease, "", true, kept,
			with(func(w *work) { w.erasure = flow(baremetalv1.Workflow_COMPLETED) })},
		{"erased and back", stepRelease, "", true, idle,
			with(func(w *work) { w.leave, w.erasure, w.back = in, flow(baremetalv1.Workflow_COMPLETED), served })},
	} {
		if d := nextRelease(c.m, c.w, c.erase); d.step != c.step || d.reason != c.reason {
			t.Errorf("%s: %q %q, want %q %q", c.name, d.step, d.reason, c.step, c.reason)
		}
	}
}
