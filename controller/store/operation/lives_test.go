package operation_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// lives are what happens to machines, each on a database of its own.
var lives = map[string]func(*testing.T, *store.Store){
	"reboot": func(t *testing.T, s *store.Store) {
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
	},
	"cancel": func(t *testing.T, s *store.Store) {
		_, op, _ := storetest.Rebooting(t, s, "m-1")
		if err := storetest.Each(t, s, func() error {
			_, err := s.Operations.Cancel(t.Context(), op, "tester", storetest.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		storetest.Whole(t, s, "m-1", op, operation.Canceled)
	},
	"settlement": func(t *testing.T, s *store.Store) {
		a, op, c := storetest.Rebooting(t, s, "m-1")
		storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
		storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, StateID: "st-1",
			Outcome: operation.OutcomeUnknown})
		storetest.Whole(t, s, "m-1", op, operation.Failed)
		if storetest.Machine(t, s, "m-1").GetStatus().GetUnresolvedCommandId() != c.ID {
			t.Fatal("no fence")
		}
		if err := storetest.Each(t, s, func() error {
			_, err := s.Operations.Settle(t.Context(), "m-1", c.ID, "happened", "tester", "seen", storetest.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if id := storetest.Machine(t, s, "m-1").GetStatus().GetUnresolvedCommandId(); id != "" {
			t.Errorf("fenced over %s", id)
		}
		if err := storetest.Each(t, s, func() error {
			_, err := s.Operations.ClearIntervention(t.Context(), "m-1", "tester", "looked at", storetest.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	},
	"reimage": func(t *testing.T, s *store.Store) { storetest.NewMetalRigOn(t, s).Reimage() },
	"onboarding": func(t *testing.T, s *store.Store) {
		r := storetest.NewMetalRigOn(t, s)
		op := r.Begin(workflow.Onboarding, workflow.NoMode)
		r.IntoInstaller(op)
	},
	// A session that opens finds what is open, and proves or loses what was granted.
	"sessions": func(t *testing.T, s *store.Store) {
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
	},
}

// longLives are of calls that the lives above make as well.
var longLives = map[string]func(*testing.T, *store.Store){
	"retry": func(t *testing.T, s *store.Store) {
		a, op, c := storetest.Rebooting(t, s, "m-1")
		for seq := uint64(1); c != nil; seq++ {
			storetest.Decide(t, s, op, storetest.Ask(a, c, seq, 1))
			storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, StateID: "st-1",
				Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED", Message: "no power", Retryable: true})
			c = decideAt(t, s, op, operation.Due{}, time.Hour*time.Duration(seq)).Decision.NewCommand
		}
		storetest.Whole(t, s, "m-1", op, operation.Failed)
	},
	"silence": func(t *testing.T, s *store.Store) {
		_, op, c := storetest.Rebooting(t, s, "m-1")
		storetest.Decide(t, s, op, operation.AckedByAgent{CommandID: c.ID})
		decideAt(t, s, op, operation.Due{}, 100*time.Hour)
	},
	"maintenance": func(t *testing.T, s *store.Store) {
		storetest.Live(t, s, "m-1")
		for _, of := range []fleet.OperationType{fleet.ExitMaintenance, fleet.EnterMaintenance} {
			op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: string(of), Type: of,
				Comment: "for the test"}).GetOperationId()
			storetest.Decide(t, s, op, operation.Evaluate{})
			storetest.Whole(t, s, "m-1", op, operation.Succeeded)
		}
	},
	"flags": func(t *testing.T, s *store.Store) {
		_, op, _ := storetest.Rebooting(t, s, "m-1")
		for _, value := range []bool{true, false} {
			if err := storetest.Each(t, s, func() error {
				_, err := s.Operations.SetFlag(t.Context(), "m-1", string(fleet.RMA), value, "tester", "broken",
					storetest.Now())
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Whole(t, s, "m-1", op, operation.Canceled)
	},
	// An attempt that fails is counted, and with the onboarding that ends well the count is forgotten.
	"attempts": func(t *testing.T, s *store.Store) {
		r := storetest.NewMetalRigOn(t, s)
		op := r.Begin(workflow.Onboarding, workflow.NoMode)
		inst := r.IntoInstaller(op)
		r.Grant(op, inst, "st-boot-ram", "boot-ram")
		fails(r, op, inst)
		if n := attempts(t, s); n != 1 {
			t.Fatalf("%d attempts are counted", n)
		}
		op = actOn(t, r, workflow.Resume)
		inst = r.IntoInstaller(op)
		r.Grant(op, inst, "st-boot-ram", "boot-ram")
		fails(r, op, inst)
		if n := attempts(t, s); n != 2 {
			t.Fatalf("%d attempts are counted after two", n)
		}
		op = actOn(t, r, workflow.RetryStage)
		installed(r, op, r.IntoInstaller(op))
		if n := attempts(t, s); n != 0 {
			t.Errorf("%d attempts are counted after an installation", n)
		}
	},
	"attempts of an onboarding that is given up": func(t *testing.T, s *store.Store) {
		r := storetest.NewMetalRigOn(t, s)
		op := r.Begin(workflow.Onboarding, workflow.NoMode)
		inst := r.IntoInstaller(op)
		r.Grant(op, inst, "st-boot-ram", "boot-ram")
		fails(r, op, inst)
		actOn(t, r, workflow.Cancel)
		if n := attempts(t, s); n != 1 {
			t.Errorf("%d attempts are counted", n)
		}
	},
}

// decideAt decides on an event that comes so much later.
func decideAt(
	t *testing.T, s *store.Store, op string, e operation.Event, later time.Duration,
) (a *operationstore.Applied) {
	t.Helper()
	if err := storetest.Each(t, s, func() (err error) {
		a, err = s.Operations.Decide(t.Context(), op, e, storetest.Now().Add(later))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

func attempts(t *testing.T, s *store.Store) int {
	t.Helper()
	return int(storetest.Machine(t, s, "m-1").GetStatus().GetInstallAttempts())
}

// TestLives makes each call of a life once for each of its statements, with that one failing. It returns the error and
// changes nothing, and the same call brings the life on. And it compares the rows that each call writes with those that
// are recorded.
func TestLives(t *testing.T) {
	for name, live := range lives {
		t.Run(name, func(t *testing.T) { storetest.OnEach(t, live) })
	}
	for name, live := range longLives {
		t.Run(name, func(t *testing.T) { storetest.OnRecorded(t, live) })
	}
}

// actOn acts on the machine's workflow, and returns the operation of its attempt.
func actOn(t *testing.T, r *storetest.MetalRig, a workflow.Action) (op string) {
	t.Helper()
	w := r.Workflow().GetWorkflowId()
	if err := storetest.Each(t, r.Store, func() error {
		acted, err := r.Store.Workflows.ActOnWorkflow(t.Context(), workflowstore.WorkflowAct{
			WorkflowID: w, RequestID: string(a), Action: a, Actor: "tester",
			Inputs: workflowstore.SameInputs(storetest.Inputs("tiny")),
		}, storetest.Now())
		if err == nil {
			op = acted.Operation.GetOperationId()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return op
}

// fails has the installer fail at the command that it was granted.
func fails(r *storetest.MetalRig, op string, inst storetest.Enrolled) {
	r.T.Helper()
	r.Decide(op, operation.Resulted{CommandID: r.Command(op).GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram",
		Outcome: operation.OutcomeFailed, Reason: "DISK_WRITE_ERROR", Message: "bad disk"})
}

// installed has the installer write the image, and the new system come.
func installed(r *storetest.MetalRig, op string, inst storetest.Enrolled) {
	r.T.Helper()
	r.Grant(op, inst, "st-boot-ram", "boot-ram")
	c := r.Command(op)
	if _, err := r.Store.Identities.IssueIdentity(r.T.Context(), inst.ID, c.GetCommandId(), "t-new", "secret of t-new",
		storetest.Now()); err != nil {
		r.T.Fatal(err)
	}
	r.Decide(op, operation.Resulted{CommandID: c.GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram",
		Outcome:  operation.OutcomeSucceeded,
		Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"}})
	r.Applied()
	r.Grant(op, inst, "st-boot-ram", "boot-ram")
	r.NewSystem(op)
}
