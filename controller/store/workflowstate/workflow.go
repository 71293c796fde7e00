package workflowstate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

func WorkflowNotFound(id string) error {
	return failure.NotFound("WORKFLOW_NOT_FOUND", "there is no workflow %q", id).WithField("workflow_id", "unknown")
}

func WorkflowFromRow(r dbsqlc.Workflow) (workflow.Workflow, error) {
	w := workflow.Workflow{
		ID: r.WorkflowID, MachineID: r.MachineID, Kind: workflow.Kind(r.Kind), Mode: workflow.Mode(r.Mode),
		State: workflow.State(r.State),
		Stage: r.Stage, StageIdx: int(r.StageIdx), Plan: slices.Clone(r.Plan), Attempts: int(r.AttemptCount),
		Unclean:      r.Unclean,
		FailureClass: workflow.Class(r.FailureClass), Reason: r.Reason, Message: r.Message,
		LastAction: workflow.Action(r.LastAction),
		Adopted:    r.Adopted, OperationID: pgtx.StrVal(r.OperationID),
	}
	if err := json.Unmarshal(r.Evidence, &w.Evidence); err != nil {
		return w, fmt.Errorf("parse stored evidence: %w", err)
	}
	if err := json.Unmarshal(r.Failures, &w.Failures); err != nil {
		return w, fmt.Errorf("parse stored failures: %w", err)
	}
	return w, nil
}

// SaveWorkflow writes what follows from a decision or an action.
func SaveWorkflow(ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, observed string, now time.Time) error {
	evidence, err := pgtx.JSONMap(w.Evidence)
	if err != nil {
		return err
	}
	failures, err := json.Marshal(w.Failures)
	if err != nil {
		return fmt.Errorf("serialize failures: %w", err)
	}
	if w.Failures == nil {
		failures = []byte("{}")
	}
	p := dbsqlc.UpdateWorkflowParams{
		WorkflowID: w.ID, State: string(w.State), Stage: w.Stage, StageIdx: int32(w.StageIdx),
		AttemptCount: int32(w.Attempts),
		Repeats:      int32(w.Failures[w.Stage]), Failures: failures, Unclean: w.Unclean,
		FailureClass: string(w.FailureClass), Reason: w.Reason, Message: w.Message,
		ObservedProviderState: observed, LastAction: string(w.LastAction), Adopted: w.Adopted, Evidence: evidence,
		OperationID: pgtx.StrPtr(w.OperationID), Now: now,
	}
	if !workflow.Holds(w.State) {
		p.EndedAt = &now
	}
	if err := q.UpdateWorkflow(ctx, p); err != nil {
		return fmt.Errorf("update workflow: %w", err)
	}
	return nil
}
