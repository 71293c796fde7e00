package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// refused reports whether the store has said no, for a reason of its own.
func refused(err error) bool {
	var f *failure.Error
	return errors.As(err, &f)
}

// join brings new machines in, by onboarding workflows, until one is in service: what happens to a workflow is drawn,
// too.
func (l *life) join(ctx context.Context) error {
	for range 20 {
		l.generation++
		l.agent = storetest.Enrolled{Machine: fmt.Sprintf("%s.%d", l.name, l.generation)}
		l.machines, l.command, l.boot = append(l.machines, l.agent.Machine), nil, 1
		if err := l.onboard(ctx); err != nil {
			return fmt.Errorf("onboard %s: %w", l.agent.Machine, err)
		}
		if serving, err := l.serving(ctx); serving || err != nil {
			return err
		}
	}
	return fmt.Errorf("no machine of %s comes into service", l.name)
}

func (l *life) onboard(ctx context.Context) error {
	n := agentstore.NewToken{TokenID: "t-" + l.agent.Machine, MachineID: l.agent.Machine, Role: "host",
		ExpiresAt: storetest.Now().Add(time.Hour), Actor: "tester"}
	n.Secret = "secret of " + n.TokenID
	if _, err := l.s.Machines.Register(ctx, &baremetalv1.Machine{MachineId: l.agent.Machine,
		Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester", storetest.Now()); err != nil {
		return err
	}
	if _, err := l.s.Agents.IssueToken(ctx, n, storetest.Now()); err != nil {
		return err
	}
	w, err := l.startWorkflow(ctx, workflow.Onboarding, workflow.NoMode)
	if err != nil {
		return err
	}
	if _, err := l.step(ctx, w.GetOperationId()); err != nil {
		return err
	}
	e, err := l.s.Agents.Enroll(ctx, storetest.EnrollWith(n, "key of "+n.TokenID), storetest.NewSigner().Sign,
		storetest.Now())
	if err != nil {
		return err
	}
	l.agent.ID, l.agent.Fingerprint = e.AgentID, "fp-"+e.AgentID+"1"
	h := l.agent.Hello("st-1", fmt.Sprint("boot-", l.boot))
	h.Capabilities, h.Simulated = []string{"reboot", "netboot", "repave", "erase", "reconfig", "provider:fake"}, true
	o, err := l.s.Sessions.OpenSession(ctx, h, storetest.Now())
	if err != nil {
		return err
	}
	for _, id := range o.Operations {
		if _, err := l.s.Operations.Decide(ctx, id, operation.SessionOpened{AgentID: e.AgentID, StateID: "st-1",
			BootID: h.BootID, OfTarget: true}, storetest.Now()); err != nil {
			return err
		}
	}
	return l.follow(ctx, w.GetWorkflowId())
}

func (l *life) startWorkflow(ctx context.Context, k workflow.Kind, m workflow.Mode) (*baremetalv1.Workflow, error) {
	l.asked++
	_, _, err := l.s.Workflows.StartWorkflow(ctx, workflowstore.WorkflowStart{
		MachineID: l.agent.Machine, RequestID: fmt.Sprint("w-", l.asked), Kind: k, Mode: m, EnterMaintenance: true,
		Actor:  "tester",
		Inputs: storetest.Inputs("img"), DryRun: l.chance(10),
	}, storetest.Now())
	if err != nil {
		return nil, err
	}
	open, err := l.s.Workflows.ListWorkflows(ctx, workflowstore.WorkflowFilter{MachineID: l.agent.Machine, Open: true,
		Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(open) == 0 {
		return l.startWorkflow(ctx, k, m) // that was the dry run
	}
	return open[0], nil
}

// leave runs one decommission of a mode that is drawn; a machine that is not in service afterwards is followed by a new
// one.
func (l *life) leave(ctx context.Context) error {
	modes := workflow.Modes(workflow.Decommission)
	l.command = nil
	w, err := l.startWorkflow(ctx, workflow.Decommission, modes[l.rnd.IntN(len(modes))])
	if err != nil {
		return err
	}
	if err := l.follow(ctx, w.GetWorkflowId()); err != nil {
		return err
	}
	serving, err := l.serving(ctx)
	if err != nil || serving {
		return err
	}
	return l.join(ctx)
}

// serving says that the machine can be given work.
func (l *life) serving(ctx context.Context) (bool, error) {
	m, err := l.s.Machines.KnownMachine(ctx, l.agent.Machine)
	if err != nil || m.GetDeletedAt() != nil {
		return false, err
	}
	if err := l.afterwards(ctx); err != nil {
		return false, err
	}
	return m.GetStatus().GetNodeState() == baremetalv1.NodeState_NODE_STATE_ACTIVE, nil
}

// follow lets things happen to a workflow until it has ended. Whoever operates it gives up after some actions.
func (l *life) follow(ctx context.Context, id string) error {
	acts := 0
	l.long = true
	defer func() { l.long = false }()
	for range 2000 {
		w, err := l.s.Workflows.GetWorkflow(ctx, id)
		if err != nil || w.GetEndedAt() != nil {
			return err
		}
		op, err := l.s.OperationQueries.GetOperation(ctx, w.GetOperationId())
		if err != nil {
			return err
		}
		if op.GetFinishedAt() == nil && !l.chance(3) {
			if _, err := l.step(ctx, op.GetOperationId()); err != nil {
				return err
			}
			continue
		}
		acts++
		if err := l.actOn(ctx, id, acts > 8); err != nil {
			return err
		}
	}
	return fmt.Errorf("workflow %s has no end", id)
}

// actOn takes an action that is drawn, or cancels. What is refused is refused.
func (l *life) actOn(ctx context.Context, id string, cancel bool) error {
	l.asked++
	actions := workflow.Actions()
	r := workflowstore.WorkflowAct{
		WorkflowID: id, RequestID: fmt.Sprint("w-", l.asked), Action: actions[l.rnd.IntN(len(actions))],
		Comment: "a word of Jane Roe", Actor: "tester",
		DryRun: l.chance(10), Inputs: workflowstore.SameInputs(storetest.Inputs("img")),
	}
	if cancel {
		r.Action, r.DryRun = workflow.Cancel, false
	}
	if l.chance(10) {
		scope := failpoint.NewScope()
		scope.Set("store.before-commit", failpoint.Error())
		if _, err := l.s.Workflows.ActOnWorkflow(failpoint.With(ctx, scope), r, storetest.Now()); err != nil &&
			!errors.Is(err, failpoint.ErrInjected) && !refused(err) {
			return err
		}
	}
	acted, err := l.s.Workflows.ActOnWorkflow(ctx, r, storetest.Now())
	if err == nil && acted.Created {
		l.command = nil
	}
	if refused(err) {
		return nil
	}
	return err
}

// proof is what a healthy agent reads back.
func proof(k kind.Kind) map[string]string {
	switch k {
	case kind.Netboot:
		return map[string]string{evidence.BootNext: "pxe"}
	case kind.Erase:
		return map[string]string{evidence.EraseMethod: "nvme-sanitize"}
	case kind.Repave:
		return map[string]string{evidence.ImageDigest: "sha256:dd"}
	}
	return nil
}
