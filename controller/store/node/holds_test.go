package node_test

import (
	"fmt"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestADrainTakesASlotAsItEndsRetired: a drain that an operator starts leaves a machine that may be deleted, so that it
// waits for the budget of destruction.
func TestADrainTakesASlotAsItEndsRetired(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	var ops []string
	for i := range 2 {
		id := fmt.Sprint("m-", i+1)
		storetest.Live(t, s, id)
		ops = append(ops, moveNode(t, s, id, "drain", node.Draining).GetOperationId())
		if a := storetest.Decide(t, s, ops[i], operation.Evaluate{}); a.Decision.Op.WaitReason != operation.WaitBudget {
			t.Fatalf("%s drains without a slot: %s", id, a.Phase)
		}
	}
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, ops[1], operation.Evaluate{}); a.Phase != operation.Pending {
		t.Errorf("the second is %s", a.Phase)
	}
	storetest.Decide(t, s, ops[0], operation.Evaluate{})
	if got := storetest.State(t, s, "m-1"); got != "retired" {
		t.Errorf("the first node is %s", got)
	}
}

// TestWhatHoldsASystemIsNotSimplyRemoved, however its node's state was changed before.
func TestWhatHoldsASystemIsNotSimplyRemoved(t *testing.T) {
	for name, before := range map[string][]node.State{
		"quarantined": {node.Quarantined}, "draining": {node.Draining}, "a cancelled reimage": {node.Reprovision},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			installer(t, s)
			serviced(t, s, "m-1")
			for _, to := range before {
				op, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-1", RequestID: "first",
					To: to, ImageRef: imageFor(to), Comment: "because", Actor: "tester"}, storetest.Now())
				if err != nil {
					t.Fatal(err)
				}
				if to == node.Reprovision {
					storetest.Decide(t, s, op.GetOperationId(), operation.CancelAsked{Actor: "tester"})
				}
			}
			storetest.WantReason(t, storetest.Transition(s, "m-1", "out", node.Retired, true), "DECOMMISSION_REQUIRED")
			if storetest.Machine(t, s, "m-1").GetStatus().GetActiveOperationId() == "" {
				_, err := s.Nodes.Delete(t.Context(), "m-1", "tester", false, storetest.Now())
				storetest.WantReason(t, err, "DECOMMISSION_REQUIRED")
			}
		})
	}
}

// TestAPurgeIsJudgedAsADecommission by budgets and approval policies, at once and behind an operation that is
// cancelled.
func TestAPurgeIsJudgedAsADecommission(t *testing.T) {
	s := storetest.New(t)
	ctx := call.WithCaller(t.Context(), access.Caller{Name: "ann", Scope: access.ScopeAdmin})
	for i := range 4 {
		storetest.Live(t, s, fmt.Sprint("m-", i+1))
	}
	a, op, c := storetest.Rebooting(t, s, "m-5")
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	retire := func(id string) error {
		_, _, err := s.Nodes.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: id, RequestID: "out-" + id,
			To: node.Retired, Purge: true, Actor: "ann"}, storetest.Now())
		return err
	}
	remove := func(id string) error {
		_, err := s.Nodes.Delete(ctx, id, "ann", true, storetest.Now())
		return err
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", PerDay: 2})
	for id, purge := range map[string]func(string) error{"m-1": retire, "m-2": remove} {
		if err := purge(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, purge := range []func(string) error{retire, remove} {
		storetest.WantReason(t, purge("m-3"), "BUDGET_REQUIRED")
	}
	storetest.WantReason(t, retire("m-5"), "BUDGET_REQUIRED")
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", PerDay: 3, AtOnce: 1})
	if err := retire("m-5"); err != nil { // its slot is taken before the operation ends
		t.Fatal(err)
	}
	storetest.WantReason(t, remove("m-3"), "BUDGET_REQUIRED")
	ended := wrote(a, c)
	ended.Outcome = operation.OutcomeCanceled
	storetest.Decide(t, s, op, ended)
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL"); n != 0 ||
		storetest.State(t, s, "m-5") != "retired" {
		t.Errorf("%d slots are held, and m-5 is %s", n, storetest.State(t, s, "m-5"))
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 100})
	if _, err := s.Approvals.SetApprovalPolicy(t.Context(), &baremetalv1.ApprovalPolicy{Name: "two",
		Harm: baremetalv1.ApprovalPolicy_DESTROYS}, machinefilter.Selections{}, "ben", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for _, purge := range []func(string) error{retire, remove} {
		storetest.WantReason(t, purge("m-4"), "APPROVAL_REQUIRED")
	}
	_, _, err := s.Nodes.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: "m-4", RequestID: "drain",
		To: node.Draining, Actor: "ann"}, storetest.Now())
	storetest.WantReason(t, err, "APPROVAL_REQUIRED")
}

// TestARetiredMachineComesBackUnderTheBudget: in maintenance it is out of service again, beside machines that have left
// meanwhile.
func TestARetiredMachineComesBackUnderTheBudget(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Live(t, s, "m-2")
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "out", Domain: "fleet", AtOnce: 1,
		Harm: baremetalv1.Budget_INTERRUPTS})
	taken := `INSERT INTO budget_slots (operation_id, machine_id, site, labels, harm, taken_at)
		SELECT operation_id, target_id, '', '{}', 'INTERRUPTS', now() FROM operations WHERE target_id = 'm-1' LIMIT 1`
	storetest.Exec(t, s, taken)
	if err := purge(t.Context(), s, "m-1", "out"); err != nil {
		t.Fatal(err)
	}
	held := func() int {
		return storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL AND harm = 'INTERRUPTS'")
	}
	if n := held(); n != 0 {
		t.Errorf("a retired machine holds %d slots of interruptions", n)
	}
	storetest.Exec(t, s, strings.ReplaceAll(taken, "m-1", "m-2"))
	storetest.WantReason(t, storetest.Transition(s, "m-1", "back", node.Offline, false), "BUDGET_REQUIRED")
	storetest.Exec(t, s, "UPDATE budget_slots SET released_at = now() WHERE machine_id = 'm-2'")
	if err := storetest.Transition(s, "m-1", "back-again", node.Offline, false); err != nil || held() != 1 {
		t.Errorf("%v, %d slots are held", err, held())
	}
}
