package rollout

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/validate"
)

// workflowKinds are the workflows that rollouts start.
var workflowKinds = map[baremetalv1.RolloutSpec_Action]workflow.Kind{
	baremetalv1.RolloutSpec_ONBOARD: workflow.Onboarding, baremetalv1.RolloutSpec_DECOMMISSION: workflow.Decommission,
}

// WorkflowOf is the workflow that a rollout starts on each machine, without the machine; false where it starts none.
func WorkflowOf(spec *baremetalv1.RolloutSpec) (w workflowstore.WorkflowStart, ok bool, err error) {
	if w.Kind, ok = workflowKinds[spec.GetAction()]; !ok {
		return w, false, nil
	}
	w.Judged = true // approval policies judge the rollout as a whole
	w.EnterMaintenance, w.Params = spec.GetEnterMaintenance(), spec.GetParams()
	if w.Mode, err = validate.WorkflowMode("spec.mode", w.Kind, spec.GetMode()); err != nil {
		return w, true, err
	}
	w.Inputs, err = validate.WorkflowParams("spec.params", w.Kind, spec.GetParams())
	return w, true, err
}

// beginWorkflow starts the workflow on a machine, or finds the attempt that it has started.
func (s *Store) beginWorkflow(
	ctx context.Context, q *dbsqlc.Queries, c claim, m dbsqlc.Machine, w workflowstore.WorkflowStart, now time.Time,
) (*baremetalv1.Operation, error) {
	w.MachineID, w.RequestID, w.RolloutID, w.Actor = m.MachineID, c.RolloutID, c.RolloutID, c.CreatedBy
	if op, err := s.operations.Replay(ctx, q, w.Request()); op != nil || err != nil {
		return op, err
	}
	return s.workflows.BeginWorkflow(ctx, q, m, w, now)
}
