package timeline

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

func operationFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	rows, err := q.OperationFacts(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read operations: %w", err)
	}
	steps, err := q.StepFacts(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	byOperation := map[string]map[string]timeline.StepState{}
	for _, r := range steps {
		if byOperation[r.OperationID] == nil {
			byOperation[r.OperationID] = map[string]timeline.StepState{}
		}
		byOperation[r.OperationID][r.Name] = timeline.StepState{
			State: r.State, Retries: orNothing(r.RetryCount), Evidence: notEmptyObject(r.Evidence), Message: r.Message,
		}
	}
	t.Operations = map[string]timeline.OperationState{}
	for _, r := range rows {
		t.Operations[r.OperationID] = timeline.OperationState{
			Type: r.Type, Phase: r.Phase, Stage: r.CurrentStage, WaitReason: r.WaitReason, Error: r.Error,
			Evidence: notEmptyObject(r.Evidence), CancelRequested: r.CancelRequested, Steps: byOperation[r.OperationID],
		}
	}
	return nil
}

// notEmptyObject is a JSON object's text, nothing for an empty one.
func notEmptyObject(s string) string {
	if s == "{}" {
		return ""
	}
	return s
}

func commandFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	rows, err := q.CommandFacts(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	t.Commands = map[string]timeline.CommandState{}
	for _, r := range rows {
		t.Commands[r.CommandID] = timeline.CommandState{
			OperationID: r.OperationID, Kind: r.Kind, Step: r.StepName, Attempt: strconv.Itoa(int(r.Attempt)),
			Executor: r.ExecutorID,
			State:    r.State, Outcome: r.Outcome, Reason: r.Reason, Evidence: notEmptyObject(r.Evidence),
			SettledBy: r.SettledBy,
			Claimed:   r.Claimed,
		}
	}
	return nil
}

func workflowFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	rows, err := q.WorkflowFacts(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read workflows: %w", err)
	}
	t.Workflows = map[string]timeline.WorkflowState{}
	for _, r := range rows {
		t.Workflows[r.WorkflowID] = timeline.WorkflowState{
			Kind: r.Kind, Mode: r.Mode, State: r.State, Stage: r.Stage, Plan: r.PlanText,
			Attempt: strconv.Itoa(int(r.AttemptCount)), Repeats: orNothing(r.Repeats), OperationID: pgtx.StrVal(r.OperationID),
			FailureClass: r.FailureClass, Reason: r.Reason, Message: r.Message,
			Observed: r.ObservedProviderState, Action: r.LastAction, Evidence: notEmptyObject(r.EvidenceText),
			Adopted: r.Adopted, Ended: r.EndedAt != nil,
		}
	}
	return nil
}

func moveFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	rows, err := q.MoveFacts(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read moves of the node: %w", err)
	}
	t.Moves = map[string]timeline.MoveState{}
	for _, r := range rows {
		t.Moves[strconv.FormatInt(r.ID, 10)] = timeline.MoveState{From: r.FromState, To: r.ToState, By: r.TriggeredBy,
			User: r.UserID}
	}
	return nil
}

// auditFacts reads the rows that the history names, and those that it should name.
func auditFacts(
	ctx context.Context, q *dbsqlc.Queries, machineID string, history *timeline.State, t *timeline.Tables,
) error {
	known := make([]int64, 0, len(history.Audits))
	for id := range history.Audits {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return fmt.Errorf("parse number of audit row: %w", err)
		}
		known = append(known, n)
	}
	rows, err := q.AuditFacts(ctx, dbsqlc.AuditFactsParams{Ids: known, MachineID: machineID})
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	t.Audits = map[string]timeline.AuditData{}
	for _, r := range rows {
		t.Audits[strconv.FormatInt(r.AuditID, 10)] = timeline.AuditData{
			AuditRow: timeline.AuditRow{
				Actor: r.Actor, OperationID: r.OperationID, Verb: r.Verb, Target: r.TargetID, RequestID: r.RequestID,
				At:           strconv.FormatInt(r.Ts.UnixMicro(), 10),
				ScrubThrough: r.ScrubThrough, ScrubVerb: r.ScrubVerb,
			},
			Salt: r.Salt, Data: r.Data,
		}
	}
	return nil
}
