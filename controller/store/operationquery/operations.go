package operationquery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// GetOperation reads an operation.
func (s *Store) GetOperation(ctx context.Context, id string) (*baremetalv1.Operation, error) {
	row, err := s.db.Q.GetOperation(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, convert.OperationNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	return OperationOf(ctx, s.db.Q, row)
}

// OperationOf returns the operation of a row, with the progress of its current step.
func OperationOf(ctx context.Context, q *dbsqlc.Queries, row dbsqlc.Operation) (*baremetalv1.Operation, error) {
	all, err := withProgress(ctx, q, []dbsqlc.Operation{row})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func withProgress(ctx context.Context, q *dbsqlc.Queries, rows []dbsqlc.Operation) ([]*baremetalv1.Operation, error) {
	var active []string
	for _, r := range rows {
		if r.FinishedAt == nil {
			active = append(active, r.OperationID)
		}
	}
	progress := map[string]dbsqlc.StepProgress{}
	if len(active) > 0 {
		all, err := q.ProgressOf(ctx, active)
		if err != nil {
			return nil, fmt.Errorf("read progress: %w", err)
		}
		for _, p := range all {
			progress[fmt.Sprint(p.OperationID, p.Idx)] = p
		}
	}
	out := make([]*baremetalv1.Operation, 0, len(rows))
	for _, r := range rows {
		op, err := convert.OperationFromRow(r, nil)
		if err != nil {
			return nil, err
		}
		m := convert.OperationMessage(r, op)
		p := progress[fmt.Sprint(r.OperationID, r.CurrentStep)]
		m.ProgressPercent, m.ProgressMessage = p.Percent, p.Message
		out = append(out, m)
	}
	return out, nil
}

// OperationFilter narrows a list. Empty fields match everything.
type OperationFilter struct {
	MachineID, OperationID, RequestID, Type, Phase string
	CreatedAfter, CreatedBefore                    time.Time
	// BeforeTime and BeforeID are the position of the last row of the page before.
	BeforeTime time.Time
	BeforeID   string
	Limit      int32
	// Selections hold the machines; the zero value holds all.
	Selections machinefilter.Selections
}

// ListOperations reads operations, newest first.
func (s *Store) ListOperations(ctx context.Context, f OperationFilter) ([]*baremetalv1.Operation, error) {
	rows, err := s.operationRows(ctx, f)
	if err != nil {
		return nil, err
	}
	return withProgress(ctx, s.db.Q, rows)
}

func (s *Store) operationRows(ctx context.Context, f OperationFilter) ([]dbsqlc.Operation, error) {
	rows, err := s.db.Lists(ctx).ListOperations(ctx, dbsqlc.ListOperationsParams{
		MachineID: f.MachineID, OperationID: f.OperationID, RequestID: f.RequestID, Type: f.Type, Phase: f.Phase,
		CreatedAfter: pgtx.TimePtr(f.CreatedAfter), CreatedBefore: pgtx.TimePtr(f.CreatedBefore), BeforeTime: f.BeforeTime,
		BeforeID: f.BeforeID, PageSize: f.Limit, Selections: f.Selections.SQL(),
	})
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	return rows, nil
}

// ListRuns reads runs, newest first.
func (s *Store) ListRuns(ctx context.Context, f OperationFilter) ([]*baremetalv1.Run, error) {
	rows, err := s.operationRows(ctx, f)
	if err != nil {
		return nil, err
	}
	return s.runsOf(ctx, rows)
}

// GetRun reads the step-level view of an operation.
func (s *Store) GetRun(ctx context.Context, id string) (*baremetalv1.Run, error) {
	row, err := s.db.Q.GetOperation(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, convert.OperationNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	runs, err := s.runsOf(ctx, []dbsqlc.Operation{row})
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

func (s *Store) runsOf(ctx context.Context, rows []dbsqlc.Operation) ([]*baremetalv1.Run, error) {
	idList := make([]string, 0, len(rows))
	for _, r := range rows {
		idList = append(idList, r.OperationID)
	}
	steps, latest, progress, err := s.runParts(ctx, idList)
	if err != nil {
		return nil, err
	}
	out := make([]*baremetalv1.Run, 0, len(rows))
	for _, r := range rows {
		op, err := convert.OperationFromRow(r, steps[r.OperationID])
		if err != nil {
			return nil, err
		}
		out = append(out, convert.RunMessage(convert.OperationMessage(r, op), op, latest[r.OperationID],
			progress[r.OperationID]))
	}
	return out, nil
}

type (
	latestByStep   = map[int]dbsqlc.LatestCommandsOfManyRow
	progressByStep = map[int]dbsqlc.StepProgress
)

func (s *Store) runParts(
	ctx context.Context, idList []string,
) (map[string][]dbsqlc.OperationStep, map[string]latestByStep, map[string]progressByStep, error) {
	stepRows, err := s.db.Q.StepsOfMany(ctx, idList)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read steps: %w", err)
	}
	commandRows, err := s.db.Q.LatestCommandsOfMany(ctx, idList)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read commands: %w", err)
	}
	progressRows, err := s.db.Q.ProgressOf(ctx, idList)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read progress: %w", err)
	}
	steps, latest, progress := map[string][]dbsqlc.OperationStep{}, map[string]latestByStep{}, map[string]progressByStep{}
	for _, r := range stepRows {
		steps[r.OperationID] = append(steps[r.OperationID], r)
	}
	for _, r := range commandRows {
		if latest[r.OperationID] == nil {
			latest[r.OperationID] = latestByStep{}
		}
		latest[r.OperationID][int(r.StepIdx)] = r
	}
	for _, r := range progressRows {
		if progress[r.OperationID] == nil {
			progress[r.OperationID] = progressByStep{}
		}
		progress[r.OperationID][int(r.Idx)] = r
	}
	return steps, latest, progress, nil
}

// CommandFilter names an operation, a machine, or both, and the position of the last row of the page before.
type CommandFilter struct {
	OperationID, MachineID string
	BeforeTime             time.Time
	BeforeID               string
	Limit                  int32
}

// ListCommands reads the commands of an operation or a machine, newest first.
func (s *Store) ListCommands(ctx context.Context, f CommandFilter) ([]*baremetalv1.Command, error) {
	rows, err := s.db.Lists(ctx).ListCommands(ctx, dbsqlc.ListCommandsParams{
		OperationID: f.OperationID, MachineID: f.MachineID, BeforeTime: f.BeforeTime, BeforeID: f.BeforeID, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	out := make([]*baremetalv1.Command, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.Command{
			CommandId: r.CommandID, OperationId: r.OperationID, MachineId: r.TargetID, Step: r.StepName, Attempt: r.Attempt,
			Kind: r.Kind, State: r.State, ExecutorAgentId: r.ExecutorID, CreatedAt: convert.Timestamp(r.CreatedAt),
			SentAt:  convert.TimestampPtr(r.SentAt),
			AckedAt: convert.TimestampPtr(r.AckedAt), GrantedAt: convert.TimestampPtr(r.GrantedAt),
			FinishedAt: convert.TimestampPtr(r.FinishedAt),
			Deadline:   convert.Timestamp(r.Deadline), Outcome: r.Outcome, Message: r.Message,
			Evidence:  convert.JSONToMap(r.Evidence),
			SettledBy: r.SettledBy,
		})
	}
	return out, nil
}

// Work is how many operations there are, and how many agents that do them hold a session.
type Work = dbsqlc.CountWorkRow

// CountWork counts operations that run, that wait, and that were asked for since a time and have failed.
func (s *Store) CountWork(ctx context.Context, since time.Time) (Work, error) {
	w, err := s.db.Q.CountWork(ctx, since)
	if err != nil {
		return w, fmt.Errorf("count operations: %w", err)
	}
	return w, nil
}

// CountUnwakeable counts active operations that were not evaluated for long after their time. Its normal value is 0.
func (s *Store) CountUnwakeable(ctx context.Context, now time.Time) (int64, error) {
	n, err := s.db.Q.CountUnwakeable(ctx, pgtx.TimePtr(now.Add(-30*time.Second)))
	if err != nil {
		return 0, fmt.Errorf("count overdue operations: %w", err)
	}
	return n, nil
}
