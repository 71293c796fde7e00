package operation_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// Each call of these lives is made once for each of its statements, with that one failing. It says so and changes
// nothing, and the same call brings the life on.

func TestAFailedStatementOfARebootChangesNothing(t *testing.T) {
	s := storetest.NewFaulty(t)
	a := storetest.Live(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot,
		Params: map[string]string{"mode": "graceful"}}).GetOperationId()
	d := storetest.Decide(t, s, op, operation.Evaluate{})
	storetest.Decide(t, s, op, operation.AckedByAgent{CommandID: d.Command.ID})
	if g := storetest.Decide(t, s, op, storetest.Ask(a, d.Command, 1, 1)); !g.Decision.Grant {
		t.Fatalf("no grant: %+v", g.Decision.Refusal)
	}
	storetest.Open(t, s, a.Hello("st-1", "boot-2"))
	storetest.Decide(t, s, op, operation.Resulted{CommandID: d.Command.ID, AgentID: a.ID, StateID: "st-1",
		Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2"})
	storetest.Whole(t, s, "m-1", op, operation.Succeeded)
	storetest.Intact(t, s, "m-1")
}

func TestAFailedStatementOfACancelChangesNothing(t *testing.T) {
	s := storetest.NewFaulty(t)
	_, op, _ := storetest.Rebooting(t, s, "m-1")
	if err := storetest.Each(t, s, func() error {
		_, err := s.Cancel(t.Context(), op, "tester", storetest.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	storetest.Whole(t, s, "m-1", op, operation.Canceled)
	storetest.Intact(t, s, "m-1")
}

func TestAFailedStatementOfASettlementChangesNothing(t *testing.T) {
	s := storetest.NewFaulty(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, StateID: "st-1",
		Outcome: operation.OutcomeUnknown})
	storetest.Whole(t, s, "m-1", op, operation.Failed)
	if storetest.Machine(t, s, "m-1").GetStatus().GetUnresolvedCommandId() != c.ID {
		t.Fatal("no fence")
	}
	if err := storetest.Each(t, s, func() error {
		_, err := s.Settle(t.Context(), "m-1", c.ID, "happened", "tester", "seen", storetest.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if id := storetest.Machine(t, s, "m-1").GetStatus().GetUnresolvedCommandId(); id != "" {
		t.Errorf("fenced over %s", id)
	}
	storetest.Intact(t, s, "m-1")
}

func TestAFailedStatementOfAReimageChangesNothing(t *testing.T) {
	r := storetest.NewMetalRigOn(t, storetest.NewFaulty(t))
	r.Reimage()
	storetest.Intact(t, r.Store, "m-1")
}

func TestAFailedStatementOfAnOnboardingChangesNothing(t *testing.T) {
	r := storetest.NewMetalRigOn(t, storetest.NewFaulty(t))
	op := r.Begin(workflow.Onboarding, workflow.NoMode)
	r.IntoInstaller(op)
	storetest.Intact(t, r.Store, "m-1")
}

// A session that opens finds what is open, and proves or loses what was granted.
func TestAFailedStatementOfASessionChangesNothing(t *testing.T) {
	s := storetest.NewFaulty(t)
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	storetest.Lease(t, s)
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}).GetOperationId()
	c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	storetest.Open(t, s, a.Hello("st-2", "boot-1"))
	storetest.Decide(t, s, op, operation.SessionOpened{AgentID: a.ID, StateID: "st-2", BootID: "boot-1", OfTarget: true})
	storetest.Open(t, s, a.Hello("st-2", "boot-2"))
	storetest.Intact(t, s, "m-1")
}
