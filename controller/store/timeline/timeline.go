package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// TimelineQuery asks for a page of a machine's history.
type TimelineQuery struct {
	MachineID string
	// From is where the page before ended; the zero value begins.
	From TimelinePosition
	// Since and Until bound the entries' times where they are set.
	Since, Until time.Time
	OldestFirst  bool
	// Limit is how many changes.
	Limit int32
}

// TimelinePosition is a change: the number of its entry, and its own in it, from 0.
type TimelinePosition struct {
	Seq    int64
	Change int32
}

// Timeline reads a page of a machine's history, change by change.
func (s *Store) Timeline(ctx context.Context, f TimelineQuery) ([]*baremetalv1.TimelineEntry, error) {
	rows, err := s.timelineRows(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	out := make([]*baremetalv1.TimelineEntry, 0, f.Limit)
	for _, r := range rows {
		all, err := timelineMessages(r)
		if err != nil {
			return nil, err
		}
		if !f.OldestFirst {
			slices.Reverse(all)
		}
		for _, m := range all {
			if len(out) < int(f.Limit) && f.beyond(m) {
				out = append(out, m)
			}
		}
	}
	return out, nil
}

// beyond reports whether a change comes after the position, in the order that is asked for.
func (f TimelineQuery) beyond(m *baremetalv1.TimelineEntry) bool {
	switch {
	case m.GetSeq() != f.From.Seq:
		return true
	case f.OldestFirst:
		return m.GetChange() > f.From.Change
	default:
		return m.GetChange() < f.From.Change
	}
}

// timelineRows reads enough entries for a page: each has a change, and the first may have been read up to its last.
func (s *Store) timelineRows(ctx context.Context, f TimelineQuery) ([]dbsqlc.TimelineNewestRow, error) {
	if !f.OldestFirst {
		return s.db.Q.TimelineNewest(ctx, dbsqlc.TimelineNewestParams{
			MachineID: f.MachineID, FromSeq: cmp.Or(f.From.Seq, math.MaxInt64), Since: pgtx.TimePtr(f.Since),
			Until: pgtx.TimePtr(f.Until), PageSize: f.Limit + 1,
		})
	}
	oldest, err := s.db.Q.TimelineOldest(ctx, dbsqlc.TimelineOldestParams{
		MachineID: f.MachineID, FromSeq: f.From.Seq, Since: pgtx.TimePtr(f.Since), Until: pgtx.TimePtr(f.Until),
		PageSize: f.Limit + 1,
	})
	rows := make([]dbsqlc.TimelineNewestRow, 0, len(oldest))
	for _, r := range oldest {
		rows = append(rows, dbsqlc.TimelineNewestRow(r))
	}
	return rows, err
}

// timelineMessages are the changes of an entry, in their order.
func timelineMessages(r dbsqlc.TimelineNewestRow) ([]*baremetalv1.TimelineEntry, error) {
	e := timeline.Entry{Seq: r.Seq, Kind: r.Kind, Actor: r.Who, OperationID: r.OperationID, CommandID: r.CommandID,
		Fields: []byte(r.Fields)}
	changes, err := e.Changes()
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	out := make([]*baremetalv1.TimelineEntry, 0, len(changes))
	for i, c := range changes {
		out = append(out, &baremetalv1.TimelineEntry{
			Ts: convert.Timestamp(r.Ts), Kind: c.Kind, Summary: timeline.Summary(c.Kind, c.Fields),
			Actor:       pgtx.OrText(c.Actor, "system"),
			OperationId: c.OperationID, CommandId: c.CommandID, Fields: c.Fields, Hash: r.Hash, Seq: r.Seq, PrevHash: r.PrevHash,
			Tx:     r.Tx,
			Change: int32(i),
		})
	}
	return out, nil
}

// historyPage is how many entries are read at once where all of them are walked.
const historyPage = 2000

// walkHistory calls fn with a machine's entries in order, up to a time if one is given.
func walkHistory(
	ctx context.Context, q *dbsqlc.Queries, machineID string, until time.Time, fn func(timeline.Entry) error,
) error {
	var after int64
	for {
		rows, err := q.TimelineEntries(ctx, dbsqlc.TimelineEntriesParams{
			MachineID: machineID, AfterSeq: after, Until: pgtx.TimePtr(until), PageSize: historyPage,
		})
		if err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		for _, r := range rows {
			if err := fn(timelineEntry(r)); err != nil {
				return err
			}
			after = r.Seq
		}
		if len(rows) < historyPage {
			return nil
		}
	}
}

func timelineEntry(r dbsqlc.TimelineEntriesRow) timeline.Entry {
	return timeline.Entry{
		MachineID: r.MachineID, Seq: r.Seq, Time: r.Ts, Tx: r.Tx, Kind: r.Kind, Actor: r.Actor, OperationID: r.OperationID,
		CommandID: r.CommandID, Fields: []byte(r.Fields), Prev: r.PrevHash, Hash: r.Hash,
	}
}

// StateAt rebuilds what a machine was at a time from its history; nil where it had none then. A zero time means now.
func (s *Store) StateAt(ctx context.Context, machineID string, at time.Time) (*timeline.State, error) {
	state := timeline.NewState()
	if err := walkHistory(ctx, s.db.Q, machineID, at, state.Apply); err != nil {
		return nil, fmt.Errorf("rebuild machine %s: %w", machineID, err)
	}
	if !state.Exists {
		return nil, nil
	}
	return state, nil
}

// HistoryOwners lists the owners of histories, by machine id after the given one. The fleet's, which has no id, is
// first where no id is given. total counts all of them.
func (s *Store) HistoryOwners(
	ctx context.Context, after string, limit int32,
) (owners []string, total int64, err error) {
	if owners, err = s.db.Q.TimelineMachines(ctx, dbsqlc.TimelineMachinesParams{FromStart: after == "", AfterID: after,
		PageSize: limit}); err != nil {
		return nil, 0, fmt.Errorf("list machines: %w", err)
	}
	if total, err = s.db.Q.CountMachines(ctx); err != nil {
		return nil, 0, fmt.Errorf("count machines: %w", err)
	}
	return owners, total + 1, nil
}

// tablesOf reads what the tables say of a machine; the fleet has audit rows alone.
func tablesOf(
	ctx context.Context, q *dbsqlc.Queries, machineID string, history *timeline.State,
) (timeline.Tables, error) {
	t := timeline.Tables{}
	if err := auditFacts(ctx, q, machineID, history, &t); err != nil || machineID == "" {
		return t, err
	}
	for _, read := range []func(context.Context, *dbsqlc.Queries, string, *timeline.Tables) error{
		machineFacts, conditionFacts, operationFacts, commandFacts, workflowFacts, moveFacts,
	} {
		if err := read(ctx, q, machineID, &t); err != nil {
			return t, err
		}
	}
	return t, nil
}

// errNoMachine: the table has no such machine.
var errNoMachine = errors.New("no such machine")

func machineFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	m, err := q.MachineFacts(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoMachine
	}
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	t.Machine = map[string]string{}
	for k, v := range map[string]string{
		"phase": m.Phase, "node_state": m.NodeState, "boot_mode": m.BootMode, "spec": m.SpecDigest,
		"current_operation_id":  pgtx.StrVal(m.CurrentOperationID),
		"unresolved_command_id": pgtx.StrVal(m.UnresolvedCommandID),
		"agent_id":              pgtx.StrVal(m.AgentID), "boot_id": m.BootID, "os_image_digest": m.OsImageDigest,
		"power_state": m.PowerState,
		"deleted":     trueText(m.DeletedAt != nil), "plan_id": pgtx.StrVal(m.PlanID),
		"install_attempts": orNothing(m.InstallAttempts),
	} {
		if v != "" {
			t.Machine[k] = v
		}
	}
	return nil
}

// orNothing is a number's text, nothing for 0.
func orNothing(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

func trueText(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func conditionFacts(ctx context.Context, q *dbsqlc.Queries, machineID string, t *timeline.Tables) error {
	rows, err := q.ConditionsOf(ctx, []string{machineID})
	if err != nil {
		return fmt.Errorf("read conditions: %w", err)
	}
	t.Conditions = map[string]timeline.ConditionState{}
	for _, r := range rows {
		t.Conditions[r.Type] = timeline.ConditionState{Status: strconv.FormatBool(r.Status), Reason: r.Reason,
			Message: r.Message, Unknown: !r.Known}
	}
	return nil
}
