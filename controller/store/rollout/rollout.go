package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

var (
	fpRolloutCreated = failpoint.Register("rollout.created")
	fpRolloutClaimed = failpoint.Register("rollout.claimed")
	fpRolloutStarts  = failpoint.Register("rollout.before-start-commit")
	fpRolloutStarted = failpoint.Register("rollout.started")
)

// CreateRollout makes the rollout that was previewed, or returns the one that the same request has made before.
func (s *Store) CreateRollout(
	ctx context.Context, r RolloutRequest, now time.Time,
) (out *baremetalv1.Rollout, created bool, err error) {
	if out, err = s.sameRollout(ctx, s.db.Q, r); out != nil || err != nil {
		return out, false, err
	}
	p, err := s.foresee(ctx, r, now)
	if err != nil {
		return nil, false, fmt.Errorf("create rollout: %w", err)
	}
	if err := rollout.Previewed(p.GetDigest(), r.Digest); err != nil {
		return nil, false, err
	}
	if err := rollout.NotEmpty(len(p.GetWaves()), len(p.GetMachines())); err != nil {
		return nil, false, err
	}
	id := ids.New(ids.Rollout)
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return insertRollout(ctx, q, id, r, p, now) })
	if pgtx.UniqueViolation(err, "rollouts_request_id_key") {
		out, err = s.sameRollout(ctx, s.db.Q, r) // the same request at the same time
		return out, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("create rollout: %w", err)
	}
	if err := fpRolloutCreated.HitCtx(ctx); err != nil {
		return nil, false, err
	}
	out, err = s.GetRollout(ctx, id)
	return out, true, err
}

// sameRollout returns the rollout of a repeated request, nil if there is none.
func (s *Store) sameRollout(ctx context.Context, q *dbsqlc.Queries, r RolloutRequest) (*baremetalv1.Rollout, error) {
	row, err := q.GetRolloutByRequest(ctx, r.RequestID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the request: %w", err)
	}
	spec, err := marshalSpec(r.Spec)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(spec, row.Spec) || row.Digest != r.Digest {
		return nil, failure.AlreadyExists("REQUEST_ID_REUSED", "request_id %q was used for another rollout (%s)", r.RequestID,
			row.RolloutID).
			WithMeta("rollout_id", row.RolloutID)
	}
	return s.rolloutOf(ctx, q, row)
}

func marshalSpec(spec *baremetalv1.RolloutSpec) ([]byte, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("serialize spec: %w", err)
	}
	return raw, nil
}

func insertRollout(
	ctx context.Context, q *dbsqlc.Queries, id string, r RolloutRequest, p *baremetalv1.RolloutPreview, now time.Time,
) error {
	spec, err := marshalSpec(r.Spec)
	if err != nil {
		return err
	}
	row := dbsqlc.InsertRolloutParams{
		RolloutID: id, RequestID: r.RequestID, Spec: spec, Type: r.kind(), PlanID: r.Work.PlanID,
		Destructive: p.GetDestructive(), Digest: p.GetDigest(), State: string(rollout.Running),
		Waves: int32(len(p.GetWaves())), DefaultInFlight: p.GetDefaultInFlight(), DefaultPerRack: p.GetDefaultPerRack(),
		CreatedBy: r.Actor, CreatedByIdentity: r.By.Identity(), Now: now, WakeAt: &now,
	}
	if row.RightsFrom, err = creatorOf(r.By); err != nil {
		return err
	}
	if p.GetDestructive() {
		if row.ApprovalPolicies, err = approvalstore.Begin(ctx, q, approvalWork(r, p), now); err != nil {
			return err
		}
	}
	row.ApprovalPolicies = pgtx.NonNil(row.ApprovalPolicies)
	if r.Spec.GetRequireApproval() || len(row.ApprovalPolicies) > 0 {
		row.State, row.WaitReason, row.WakeAt = string(rollout.AwaitingApproval), rollout.ForApproval, nil
	}
	if err := q.InsertRollout(ctx, row); err != nil {
		return fmt.Errorf("insert rollout: %w", err)
	}
	machines := dbsqlc.InsertRolloutMachinesParams{RolloutID: id, StagesLeft: int32(len(rollout.Stages(r.kind())) - 1)}
	for i, m := range p.GetMachines() {
		machines.Positions = append(machines.Positions, int32(i+1))
		machines.MachineIds = append(machines.MachineIds, m.GetMachineId())
		machines.Waves = append(machines.Waves, m.GetWave())
		machines.Domains = append(machines.Domains, m.GetDomain())
		machines.States = append(machines.States, m.GetState().String())
		machines.Reasons = append(machines.Reasons, m.GetReason())
		machines.Messages = append(machines.Messages, m.GetMessage())
	}
	if err := q.InsertRolloutMachines(ctx, machines); err != nil {
		return fmt.Errorf("insert machines of the rollout: %w", err)
	}
	return history.Audit(ctx, q, history.AuditEntry{
		Actor: r.Actor, Verb: "CREATE_ROLLOUT", Target: id, Request: r.RequestID, Comment: r.Comment,
		Data: map[string]string{"digest": p.GetDigest(), "filter": r.Spec.GetFilter(),
			"selection_id": r.Spec.GetSelectionId(), "type": row.Type,
			"plan_id": row.PlanID, "approval_policies": strings.Join(row.ApprovalPolicies, ",")},
	}, now)
}

// GetRollout reads a rollout.
func (s *Store) GetRollout(ctx context.Context, id string) (*baremetalv1.Rollout, error) {
	row, err := s.db.Q.GetRollout(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, rolloutNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read rollout: %w", err)
	}
	return s.rolloutOf(ctx, s.db.Q, row)
}

func rolloutNotFound(id string) error {
	return failure.NotFound("ROLLOUT_NOT_FOUND", "there is no rollout %q", id).WithField("rollout_id", "unknown")
}

func (s *Store) rolloutOf(ctx context.Context, q *dbsqlc.Queries, row dbsqlc.Rollout) (*baremetalv1.Rollout, error) {
	all, err := RolloutMessages(ctx, q, []dbsqlc.Rollout{row})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// RolloutFilter narrows a list of rollouts. Empty fields match everything.
type RolloutFilter struct {
	// Identity is of who has created them; empty for everybody.
	Identity         string
	State, RequestID string
	// BeforeTime and BeforeID are the position of the last row of the page before.
	BeforeTime time.Time
	BeforeID   string
	Limit      int32
}

// CountRollouts counts those that have not ended, by state.
func (s *Store) CountRollouts(ctx context.Context) (map[string]int64, error) {
	rows, err := s.db.Q.CountRollouts(ctx)
	out := map[string]int64{}
	for _, r := range rows {
		out[r.State] = r.N
	}
	return out, err
}

// ListRollouts reads rollouts, newest first. WhoseRollout returns the creator's identity of a rollout, and its machines
// that are in the inventory. left are those of them on which it still works or will.
func (s *Store) WhoseRollout(ctx context.Context, id string) (identity string, all, left []string, err error) {
	row, err := s.db.Q.GetRollout(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, nil, rolloutNotFound(id)
	}
	if err != nil {
		return "", nil, nil, fmt.Errorf("read rollout: %w", err)
	}
	machines, err := s.db.Lists(ctx).ListRolloutMachines(ctx, dbsqlc.ListRolloutMachinesParams{RolloutID: id, Wave: -1,
		PageSize: rollout.MaxMachines})
	if err != nil {
		return "", nil, nil, fmt.Errorf("list machines of the rollout: %w", err)
	}
	for _, m := range machines {
		all = append(all, m.MachineID)
	}
	if all, err = s.db.Q.KnownMachines(ctx, all); err != nil {
		return "", nil, nil, fmt.Errorf("look up machines: %w", err)
	}
	for _, m := range machines {
		if slices.Contains(all, m.MachineID) && slices.Contains([]string{"PENDING", "STARTING", "RUNNING"}, m.State) {
			left = append(left, m.MachineID)
		}
	}
	return row.CreatedByIdentity, all, left, nil
}

func (s *Store) ListRollouts(ctx context.Context, f RolloutFilter) ([]*baremetalv1.Rollout, error) {
	rows, err := s.db.Lists(ctx).ListRollouts(ctx, dbsqlc.ListRolloutsParams{State: f.State, RequestID: f.RequestID,
		Identity:   f.Identity,
		BeforeTime: f.BeforeTime,
		BeforeID:   f.BeforeID, PageSize: f.Limit})
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	return RolloutMessages(ctx, s.db.Q, rows)
}

func RolloutMessages(ctx context.Context, q *dbsqlc.Queries, rows []dbsqlc.Rollout) ([]*baremetalv1.Rollout, error) {
	idList := make([]string, 0, len(rows))
	for _, r := range rows {
		idList = append(idList, r.RolloutID)
	}
	tallies, err := readTallies(ctx, q, idList)
	if err != nil {
		return nil, err
	}
	out := make([]*baremetalv1.Rollout, 0, len(rows))
	for _, r := range rows {
		m, err := rolloutMessage(r, tallies[r.RolloutID])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func rolloutMessage(r dbsqlc.Rollout, t tallies) (*baremetalv1.Rollout, error) {
	spec := &baremetalv1.RolloutSpec{}
	if err := proto.Unmarshal(r.Spec, spec); err != nil {
		return nil, fmt.Errorf("parse stored spec of rollout %s: %w", r.RolloutID, err)
	}
	out := &baremetalv1.Rollout{
		RolloutId: r.RolloutID, RequestId: r.RequestID, Spec: spec, Digest: r.Digest,
		State: baremetalv1.Rollout_State(baremetalv1.Rollout_State_value[r.State]), WaitReason: r.WaitReason,
		Message: r.Message,
		Wave:    r.Wave, Tally: tallyMessage(t.total()), Destructive: r.Destructive, CreatedBy: r.CreatedBy,
		ApprovedBy: r.ApprovedBy,
		CreatedAt:  convert.Timestamp(r.CreatedAt), UpdatedAt: convert.Timestamp(r.UpdatedAt),
		ApprovedAt: convert.TimestampPtr(r.ApprovedAt),
		SoakUntil:  convert.TimestampPtr(r.SoakUntil), FinishedAt: convert.TimestampPtr(r.FinishedAt), Version: r.Version,
		DefaultInFlight: r.DefaultInFlight, DefaultPerRack: r.DefaultPerRack, ApprovalPolicies: r.ApprovalPolicies,
	}
	for wave := int32(1); wave <= r.Waves; wave++ {
		out.Waves = append(out.Waves, &baremetalv1.RolloutWave{Wave: wave, Tally: tallyMessage(t[wave])})
	}
	return out, nil
}

// tallies are those of a rollout's waves; at 0 are the machines that were refused from the beginning.
type tallies map[int32]rollout.Tally

func (t tallies) total() rollout.Tally {
	var sum rollout.Tally
	for _, one := range t {
		sum = sum.Add(one)
	}
	return sum
}

func readTallies(ctx context.Context, q *dbsqlc.Queries, idList []string) (map[string]tallies, error) {
	rows, err := q.TallyRollouts(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("count machines of rollouts: %w", err)
	}
	out := map[string]tallies{}
	for _, r := range rows {
		if out[r.RolloutID] == nil {
			out[r.RolloutID] = tallies{}
		}
		t := out[r.RolloutID]
		t[r.Wave] = t[r.Wave].Add(tallyOf(r.State, int(r.Machines)))
	}
	return out, nil
}

func tallyOf(state string, n int) rollout.Tally {
	t := rollout.Tally{Machines: n}
	switch state {
	case "PENDING":
		t.Pending = n
	case "STARTING", "RUNNING":
		t.Running = n
	case "SUCCEEDED":
		t.Succeeded = n
	case "FAILED":
		t.Failed = n
	case "SKIPPED":
		t.Skipped = n
	case "CANCELED":
		t.Canceled = n
	}
	return t
}

func tallyMessage(t rollout.Tally) *baremetalv1.RolloutTally {
	sum := t.Sum()
	return &baremetalv1.RolloutTally{
		Machines: int32(t.Machines), Pending: int32(t.Pending), Running: int32(t.Running), Succeeded: int32(t.Succeeded),
		Failed: int32(t.Failed), Skipped: int32(t.Skipped), Canceled: int32(t.Canceled),
		Done: int32(sum.Done), Left: int32(sum.Left),
	}
}

// RolloutMachineFilter narrows a list of a rollout's machines.
type RolloutMachineFilter struct {
	RolloutID, State string
	// Wave is -1 for all.
	Wave int32
	// After is the position of the last row of the page before.
	After, Limit int32
}

// ListRolloutMachines reads machines in the order of the rollout, and the position of the last one.
func (s *Store) ListRolloutMachines(
	ctx context.Context, f RolloutMachineFilter,
) ([]*baremetalv1.RolloutMachine, []int32, error) {
	if _, err := s.db.Q.GetRollout(ctx, f.RolloutID); errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, rolloutNotFound(f.RolloutID)
	} else if err != nil {
		return nil, nil, fmt.Errorf("read rollout: %w", err)
	}
	rows, err := s.db.Lists(ctx).ListRolloutMachines(ctx, dbsqlc.ListRolloutMachinesParams{
		RolloutID: f.RolloutID, State: f.State, Wave: f.Wave, After: f.After, PageSize: f.Limit,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list machines of the rollout: %w", err)
	}
	out, positions := make([]*baremetalv1.RolloutMachine, 0, len(rows)), make([]int32, 0, len(rows))
	for _, r := range rows {
		out = append(out, rolloutMachineMessage(r))
		positions = append(positions, r.Position)
	}
	return out, positions, nil
}

func rolloutMachineMessage(r dbsqlc.RolloutMachine) *baremetalv1.RolloutMachine {
	state := r.State
	if state == "STARTING" {
		state = "RUNNING"
	}
	return &baremetalv1.RolloutMachine{
		MachineId: r.MachineID, Wave: r.Wave, Domain: r.Domain, OperationId: pgtx.StrVal(r.OperationID), Reason: r.Reason,
		Message: r.Message, StagesLeft: r.StagesLeft,
		State:     baremetalv1.RolloutMachine_State(baremetalv1.RolloutMachine_State_value[state]),
		StartedAt: convert.TimestampPtr(r.StartedAt), FinishedAt: convert.TimestampPtr(r.FinishedAt),
	}
}
