package operation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/commandspec"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Outgoing is a command that must be sent now that its transaction has committed.
type Outgoing struct {
	CommandID, ExecutorID string
	Spec, Digest          []byte
}

// Applied is what a committed decision means for the rest of the controller.
type Applied struct {
	Decision    operation.Decision
	OperationID string
	MachineID   string
	Version     int64
	Phase       operation.Phase
	Type        fleet.OperationType
	CreatedAt   time.Time
	FinishedAt  time.Time
	// Command is the command that the event was about, as it is now.
	Command *operation.Command
	Send    []Outgoing
	// Cancel names the executor that should be told to stop Decision.CancelOnAgent.
	CancelExecutor string
	// Revoked are the fingerprints of the certificates that ended with the operation; their sessions must end.
	Revoked []string
}

// Apply writes a decision.
func Apply(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, now time.Time,
) (*Applied, error) {
	w := &writes{}
	a, err := l.apply(ctx, q, w, d, now)
	if err != nil {
		return nil, err
	}
	return a, w.flush(ctx, q)
}

// apply gathers what a decision writes. It is the only code that writes the state of operations, steps and commands.
func (l *OperationContext) apply(
	ctx context.Context, q *dbsqlc.Queries, w *writes, d operation.Decision, now time.Time,
) (*Applied, error) {
	out := &Applied{
		Decision: d, OperationID: l.Row.OperationID, MachineID: l.Row.TargetID, Version: l.Row.Version,
		Phase: d.Op.Phase, Type: d.Op.Type, CreatedAt: d.Op.CreatedAt, FinishedAt: d.Op.FinishedAt, Command: l.Snap.Command,
	}
	if d.CancelOnAgent != "" && l.Snap.Command != nil {
		out.CancelExecutor = l.Snap.Command.ExecutorID
	}
	w.machine(l, d.Machine, now)
	if err := w.special(ctx, q, l.changesCauses(d.Machine),
		func() error { return l.causes(ctx, q, d.Machine, now) }); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, d.FlagRollback, func() error {
		return machinestore.RaiseCause(ctx, q, l.Row.TargetID, "",
			machinestore.MemoryCause("the agent asked for a grant with a number that was used before"), now)
	}); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, l.bootChanges(d.Machine),
		func() error { return l.applyBoot(ctx, q, d.Machine, now) }); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, l.agentlessChanges(d),
		func() error { return l.applyAgentless(ctx, q, d) }); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, !nodeStays(l, d), func() error { return nodeFollows(ctx, q, l, d, now) }); err != nil {
		return nil, err
	}
	if d.Resend && l.command != nil {
		out.Send = append(out.Send, Outgoing{l.command.CommandID, l.command.ExecutorID, l.command.Spec, l.command.Digest})
	}
	if !d.Changed {
		return out, nil
	}
	for _, c := range d.Commands {
		sent, err := w.command(ctx, q, l, d, c, now)
		if err != nil {
			return nil, err
		}
		out.Command = c
		if sent != nil {
			out.Send = append(out.Send, *sent)
		}
	}
	if !d.OpChanged {
		return out, nil
	}
	out.Version++
	if err := w.operation(l, d, now); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, l.freesSlot(d), func() error { return l.freeSlot(ctx, q, d, now) }); err != nil {
		return nil, err
	}
	if err := w.special(ctx, q, l.endsInstallers(d), func() (err error) {
		out.Revoked, err = revokeInstallers(ctx, q, l.Machine.MachineID, now)
		return err
	}); err != nil {
		return nil, err
	}
	return out, w.special(ctx, q, l.workflow != nil, func() error { return l.followWorkflow(ctx, q, d, now) })
}

// operation writes the operation with its steps and events.
func (w *writes) operation(l *OperationContext, d operation.Decision, now time.Time) error {
	op := d.Op
	for i, s := range op.Steps {
		if reflect.DeepEqual(s, l.Snap.Op.Steps[i]) {
			continue
		}
		p, err := stepParams(op.ID, i, s)
		if err != nil {
			return err
		}
		w.StepUpdates = append(w.StepUpdates, p)
	}
	update, err := operationParams(l, d, now)
	if err != nil {
		return err
	}
	w.OperationUpdates = append(w.OperationUpdates, update)
	if len(d.Notes) > 0 {
		events, err := eventParams(l, d, now)
		if err != nil {
			return err
		}
		w.Events = append(w.Events, events)
	}
	return nil
}

func operationParams(l *OperationContext, d operation.Decision, now time.Time) (dbsqlc.UpdateOperationParams, error) {
	op := d.Op
	errJSON, evidence, err := errorAndEvidence(op)
	return dbsqlc.UpdateOperationParams{
		OperationID: op.ID, Version: l.Row.Version, Phase: string(op.Phase), CurrentStep: int32(op.CurrentStep),
		CurrentStage: op.CurrentStage, WaitReason: op.WaitReason, WakeAt: pgtx.TimePtr(op.WakeAt),
		CancelRequestedAt: pgtx.TimePtr(op.CancelRequested), Error: errJSON, Evidence: evidence,
		StartedAt: pgtx.TimePtr(op.StartedAt), FinishedAt: pgtx.TimePtr(op.FinishedAt), Now: now,
		EventSeq: l.Row.EventSeq + int64(len(d.Notes)),
	}, err
}

func errorAndEvidence(op operation.Operation) (errJSON, evidence []byte, err error) {
	if op.Error != nil {
		if errJSON, err = json.Marshal(op.Error); err != nil {
			return nil, nil, fmt.Errorf("serialize error: %w", err)
		}
	}
	evidence, err = pgtx.JSONMap(op.Evidence)
	return errJSON, evidence, err
}

func stepParams(operationID string, idx int, s operation.Step) (dbsqlc.UpdateStepParams, error) {
	evidence, err := pgtx.JSONMap(s.Evidence)
	return dbsqlc.UpdateStepParams{
		OperationID: operationID, Idx: int32(idx), State: string(s.State), RetryCount: int32(s.RetryCount),
		RetryAt: pgtx.TimePtr(s.RetryAt), Message: s.Message, Evidence: evidence,
		StartedAt: pgtx.TimePtr(s.StartedAt), FinishedAt: pgtx.TimePtr(s.FinishedAt),
	}, err
}

// eventParams are the events of a decision, numbered under the operation's row lock. All carry the operation as it is
// after the whole decision, but for the phase: that is the one of the moment, so that a watcher sees RUNNING too of an
// operation that begins and ends in one decision.
func eventParams(l *OperationContext, d operation.Decision, now time.Time) (dbsqlc.InsertEventsParams, error) {
	p := dbsqlc.InsertEventsParams{OperationID: d.Op.ID, TargetID: d.Op.MachineID, Ts: now}
	row := l.Row
	row.Version++
	row.UpdatedAt = now
	snapshots := map[operation.Phase][]byte{}
	for i, n := range d.Notes {
		snapshot, err := snapshotAt(snapshots, row, d.Op, n.Phase)
		if err != nil {
			return p, err
		}
		p.Seqs = append(p.Seqs, l.Row.EventSeq+int64(i)+1)
		p.Kinds = append(p.Kinds, n.Kind)
		p.Steps = append(p.Steps, n.Step)
		p.Messages = append(p.Messages, n.Message)
		p.Snapshots = append(p.Snapshots, snapshot)
	}
	return p, nil
}

// snapshotAt serializes the operation as it was in a phase, once for each.
func snapshotAt(
	made map[operation.Phase][]byte, row dbsqlc.Operation, op operation.Operation, phase operation.Phase,
) ([]byte, error) {
	if phase != "" && phase != op.Phase {
		op.Phase, op.FinishedAt, op.Error = phase, time.Time{}, nil
	}
	if made[op.Phase] == nil {
		b, err := proto.Marshal(convert.OperationMessage(row, op))
		if err != nil {
			return nil, fmt.Errorf("serialize operation: %w", err)
		}
		made[op.Phase] = b
	}
	return made[op.Phase], nil
}

// command writes a command, and gives it if it is to be sent when that has committed.
func (w *writes) command(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, c *operation.Command, now time.Time,
) (*Outgoing, error) {
	if c == d.NewCommand {
		return w.newCommand(ctx, q, l, d, c, now)
	}
	evidence, err := pgtx.JSONMap(c.Evidence)
	if err != nil {
		return nil, err
	}
	w.CommandUpdates = append(w.CommandUpdates, dbsqlc.UpdateCommandParams{
		CommandID: c.ID, OldState: string(l.Snap.Command.State), State: string(c.State), ExecutorStateID: c.ExecutorStateID,
		Outcome: string(c.Outcome), Reason: c.Reason, Message: c.Message, Evidence: evidence, BootIDBefore: c.BootIDBefore,
		GrantSeq: int64(c.GrantSeq), Deadline: c.Deadline, SentAt: pgtx.TimePtr(c.SentAt), AckedAt: pgtx.TimePtr(c.AckedAt),
		GrantedAt: pgtx.TimePtr(c.GrantedAt), ClaimedAt: pgtx.TimePtr(c.ClaimedAt), FinishedAt: pgtx.TimePtr(c.FinishedAt),
		SettledBy: c.SettledBy,
	})
	if c.State == operation.Sent && l.Snap.Command.State == operation.Queued {
		return &Outgoing{c.ID, c.ExecutorID, l.command.Spec, l.command.Digest}, nil
	}
	return nil, nil
}

func (w *writes) newCommand(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, c *operation.Command, now time.Time,
) (*Outgoing, error) {
	step := &baremetalv1.Step{}
	if err := proto.Unmarshal(l.steps[c.StepIdx].Spec, step); err != nil {
		return nil, fmt.Errorf("parse stored step: %w", err)
	}
	generation := int64(0)
	if kind.Of(c.Kind).Numbered {
		var err error
		if generation, err = q.NextConfigGeneration(ctx, l.Machine.MachineID); err != nil {
			return nil, fmt.Errorf("number the configuration: %w", err)
		}
	}
	order := commandspec.Order{
		Machine: l.Machine, Spec: l.machine.Spec, Operation: d.Op, Command: c, Step: step, Catalog: l.catalog,
		Generation: generation, Workflow: l.workflow,
	}
	if l.command != nil {
		order.Before = l.command.CommandID
	}
	whole, err := order.Message(ctx, q)
	if err != nil {
		return nil, err
	}
	spec, err := commandspec.Serialize(whole)
	if err != nil {
		return nil, err
	}
	if c.Digest, err = l.digestOf(whole); err != nil {
		return nil, err
	}
	w.Commands = append(w.Commands, dbsqlc.InsertCommandParams{
		CommandID: c.ID, OperationID: d.Op.ID, TargetID: d.Op.MachineID, StepIdx: int32(c.StepIdx),
		StepName: d.Op.Steps[c.StepIdx].Name, Attempt: int32(c.Attempt), Kind: string(c.Kind), Spec: spec, Digest: c.Digest,
		ExecutorID: c.ExecutorID, ExecutorStateID: c.ExecutorStateID, State: string(c.State), Deadline: c.Deadline,
		CreatedAt: now, SentAt: pgtx.TimePtr(c.SentAt),
	})
	if c.State != operation.Sent {
		return nil, nil
	}
	return &Outgoing{c.ID, c.ExecutorID, spec, c.Digest}, nil
}

// digestOf returns the digest of a command as its executor takes it. Where its secret arguments cannot be opened here,
// it is that of the sealed ones, and the command ends when it is sent.
func (l *OperationContext) digestOf(spec *fleetv1.CommandSpec) ([]byte, error) {
	if opened, err := commandspec.Opened(spec, l.catalog.OpenArgument); err == nil {
		spec = opened
	}
	raw, err := commandspec.Serialize(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return sum[:], nil
}

// machine writes what the decision does to the machine.
func (w *writes) machine(l *OperationContext, m operation.MachineChange, now time.Time) {
	id := l.Row.TargetID
	if m.SetPhase != "" || m.ClearCurrent || m.Fence != "" || m.Unfence != "" || m.ImageDigest != "" {
		w.Machines = append(w.Machines, dbsqlc.ApplyToMachineParams{
			MachineID: id, SetPhase: string(m.SetPhase), ClearCurrent: m.ClearCurrent, Fence: m.Fence,
			Unfence: m.Unfence, ImageDigest: m.ImageDigest,
		})
	}
	if m.Repeated != "" {
		w.Repeated = append(w.Repeated, m.Repeated)
	}
	if m.Unprovision {
		w.Unprovisioned = append(w.Unprovisioned, id)
	}
	set := maps.Clone(l.Snap.World.Machine.Conditions)
	for _, c := range m.Conditions {
		if !c.Status && !set[c.Type] {
			continue // there is nothing to clear
		}
		if set == nil {
			set = map[fleet.ConditionType]bool{}
		}
		set[c.Type] = c.Status
		w.Conditions = append(w.Conditions, machinestore.ConditionRow(id, c, now))
	}
}

// writes are the rows of a change whose statements need no answers. They go to the database together, with those of
// other changes where the change is one of a set.
type writes struct {
	dbsqlc.Writes
	grants []grant
}

// memory is an agent's memory, in which it numbers its requests for grants.
type memory struct{ agentID, stateID string }

// grant is an ask for a grant under a number of its memory, the highest so far.
type grant struct {
	memory
	seq       int64
	commandID string
	nonce     []byte
}

func (g grant) row() dbsqlc.AdvanceGrantSeqParams {
	return dbsqlc.AdvanceGrantSeqParams{AgentID: g.agentID, StateID: g.stateID, Seq: g.seq, CommandID: g.commandID,
		Nonce: pgtx.NotNil(g.nonce)}
}

// flush writes the rows of a change that is alone in its transaction.
func (w *writes) flush(ctx context.Context, q *dbsqlc.Queries) error {
	rows := w.Writes
	for _, g := range w.grants {
		rows.GrantNumbers = append(rows.GrantNumbers, g.row())
	}
	*w = writes{}
	return q.Send(ctx, rows)
}

// special does what needs answers, and sees what was written so far.
func (w *writes) special(ctx context.Context, q *dbsqlc.Queries, due bool, do func() error) error {
	if !due {
		return nil
	}
	if err := w.flush(ctx, q); err != nil {
		return err
	}
	return do()
}
