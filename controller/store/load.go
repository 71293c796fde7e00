package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// loaded is an operation with all that a decision needs, its machine and itself locked.
type loaded struct {
	machine dbsqlc.Machine
	row     dbsqlc.Operation
	steps   []dbsqlc.OperationStep
	command *commandRow
	// executors are the agents that might take steps on the machine.
	executors []dbsqlc.CandidatesForRow
	spec      *baremetalv1.MachineSpec
	snap      operation.Snapshot
	// report is the event, where it is an installer's report.
	report *operation.Reported
	// before is to be written with the decision, and before it.
	before []func(*dbsqlc.Queries) error
	// cmdline is added to that of an installer.
	cmdline string
	// workflow whose attempt the operation is, as it was before the decision; nil for any other operation.
	workflow *workflow.Workflow
}

// commandRow is a command together with its executor's role.
type commandRow = dbsqlc.GetCommandRow

// load locks the machine, then the operation, and reads the rest. commandID names the command that the event is about;
// empty means the latest attempt.
func load(ctx context.Context, q *dbsqlc.Queries, operationID, commandID string, now time.Time) (*loaded, error) {
	a := about{operationID: operationID, commandID: commandID}
	f, err := factsFor(ctx, q, a, now)
	if err != nil {
		return nil, err
	}
	row, ok := f.operations[operationID]
	if !ok {
		return nil, operationNotFound(operationID)
	}
	l := &loaded{machine: f.machines[row.TargetID], row: row, steps: f.steps[operationID], command: f.command(a)}
	return l, l.complete(ctx, q, f, now)
}

// complete makes of the rows what a decision is made of.
func (l *loaded) complete(ctx context.Context, q *dbsqlc.Queries, f *facts, now time.Time) (err error) {
	l.executors = f.executors[l.machine.MachineID]
	if l.snap.Op, err = operationFromRow(l.row, l.steps); err != nil {
		return err
	}
	l.snap.Command = commandFromRow(l.command)
	if l.spec, err = specFromJSON(l.machine.Spec); err != nil {
		return err
	}
	l.snap.World, err = l.world(ctx, q, f, now)
	return err
}

// freezeSince reads since when the fleet is frozen, without the cause.
func freezeSince(ctx context.Context, q *dbsqlc.Queries) (fleet.Freeze, error) {
	since, err := q.FrozenSince(ctx)
	return fleet.Freeze{Since: timeVal(since)}, orWhat(err, "read freeze")
}

// withCause adds who froze the fleet, and why, out of the audit log. A fleet that is not frozen needs no query.
func withCause(ctx context.Context, q *dbsqlc.Queries, f fleet.Freeze) (fleet.Freeze, error) {
	if !f.Active() {
		return f, nil
	}
	row, err := q.WhoFroze(ctx, f.Since)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // Of before the restore was written to the audit log.
		f.Restored = true
		return f, nil
	case err != nil:
		return f, fmt.Errorf("read who froze the fleet: %w", err)
	}
	f.Restored, f.WentBack, f.Actor, f.Comment = row.Verb == verbRestored, row.Verb == verbWentBack, row.Actor, row.Comment
	return f, nil
}

// freezeOf reads the freeze with its cause.
func freezeOf(ctx context.Context, q *dbsqlc.Queries) (fleet.Freeze, error) {
	f, err := freezeSince(ctx, q)
	if err != nil {
		return f, err
	}
	return withCause(ctx, q, f)
}

func operationNotFound(id string) error {
	return failure.NotFound("OPERATION_NOT_FOUND", "there is no operation %q", id).WithField("operation_id", "unknown")
}

func loadCommand(ctx context.Context, q *dbsqlc.Queries, commandID string) (*commandRow, error) {
	row, err := q.GetCommand(ctx, commandID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read command: %w", err)
	}
	return &row, nil
}

// orWhat says what failed.
func orWhat(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (l *loaded) world(ctx context.Context, q *dbsqlc.Queries, f *facts, now time.Time) (_ operation.World, err error) {
	w := operation.World{
		Machine: factsOf(l.machine, f.conditions[l.machine.MachineID]), Provider: orText(l.machine.Provider, fleet.AgentProvider),
		TargetBootID: l.machine.BootID, TargetAgentID: strVal(l.machine.AgentID),
		NewCommandID: ids.New(ids.Command),
	}
	w.Machine.Freeze = f.freeze
	w.Install = operation.Install{Counted: countsAttempts(l.machine, l.snap.Op), Failed: int(l.machine.InstallAttempts), Max: node.MaxAttempts}
	l.boot(f, &w)
	if err := l.readWorkflow(ctx, q, &w); err != nil {
		return w, err
	}
	if w.SlotHeld, err = l.slot(ctx, q, now); err != nil {
		return w, err
	}
	w.Candidates = l.candidates(w.Provider)
	for _, c := range w.Candidates {
		if c.AgentID == w.TargetAgentID {
			w.TargetAgentLive = c.Live
		}
		if l.command != nil && c.AgentID == l.command.ExecutorID {
			w.ExecutorLive, w.ExecutorLastSeen = c.Live, c.LastSeen
		}
	}
	w.Unfit, err = l.unfitNow(ctx, q)
	return w, err
}

// candidates are the agents that might take steps on the machine, with what each could do there.
func (l *loaded) candidates(provider string) []fleet.Candidate {
	var out []fleet.Candidate
	for _, r := range l.executors {
		c := fleet.Candidate{
			AgentID: r.AgentID, Role: r.Role, StateID: r.StateID, Capabilities: r.Capabilities, Simulated: r.Simulated,
			Live: r.Live, LastSeen: timeVal(r.LastHeartbeatAt), OperationID: strVal(r.OperationID), BootID: r.BootID,
			ImageDigest: r.OsImageDigest, Hardware: r.HardwareFingerprint,
		}
		if c.Role == "site" && provider == fleet.AgentProvider && l.spec.GetBmcEndpoint() == "" {
			if !reachesWithoutBMC(&c, l.spec, l.speaksToCluster()) {
				continue // there is nothing through which it could reach the machine
			}
		}
		out = append(out, c)
	}
	return out
}

// reachesWithoutBMC leaves a site agent what it can do without a BMC, if there is anything: scripts over SSH, and what a
// cluster does.
func reachesWithoutBMC(c *fleet.Candidate, spec *baremetalv1.MachineSpec, cluster bool) bool {
	c.Capabilities = slices.DeleteFunc(slices.Clone(c.Capabilities), func(name string) bool {
		return (name != "cluster" || !cluster) && (name != "ssh" || spec.GetSshEndpoint() == "")
	})
	return len(c.Capabilities) > 0
}

func factsOf(m dbsqlc.Machine, conds []dbsqlc.MachineCondition) fleet.Facts {
	f := fleet.Facts{
		MachineID: m.MachineID, Phase: fleet.Phase(m.Phase), NodeState: fleet.NodeState(m.NodeState), Conditions: map[fleet.ConditionType]bool{},
		ActiveOperation: m.CurrentOperationID != nil, UnresolvedCommand: strVal(m.UnresolvedCommandID),
		Deleted: m.DeletedAt != nil, ActiveWorkflow: m.ActiveWorkflowID != nil,
	}
	for _, c := range conds {
		if c.MachineID != m.MachineID {
			continue
		}
		f.Conditions[fleet.ConditionType(c.Type)] = c.Status
		if c.Status && c.Type == string(fleet.NeedsIntervention) {
			f.Intervention = fleet.Attention{Reason: c.Reason, Message: c.Message}
		}
	}
	return f
}

func operationFromRow(r dbsqlc.Operation, steps []dbsqlc.OperationStep) (operation.Operation, error) {
	op := operation.Operation{
		ID: r.OperationID, MachineID: r.TargetID, Type: fleet.OperationType(r.Type), PlanID: r.PlanID, Phase: operation.Phase(r.Phase),
		CurrentStep: int(r.CurrentStep), CurrentStage: r.CurrentStage, WaitReason: r.WaitReason,
		WakeAt: timeVal(r.WakeAt), CancelRequested: timeVal(r.CancelRequestedAt), Version: r.Version,
		CreatedAt: r.CreatedAt, StartedAt: timeVal(r.StartedAt), FinishedAt: timeVal(r.FinishedAt), Destructive: r.Destructive,
	}
	if len(r.Error) > 0 {
		op.Error = &operation.Error{}
		if err := json.Unmarshal(r.Error, op.Error); err != nil {
			return op, fmt.Errorf("parse stored error: %w", err)
		}
	}
	if err := json.Unmarshal(r.Evidence, &op.Evidence); err != nil {
		return op, fmt.Errorf("parse stored evidence: %w", err)
	}
	for _, s := range steps {
		step, err := stepFromRow(s)
		if err != nil {
			return op, err
		}
		op.Steps = append(op.Steps, step)
	}
	return op, nil
}

func stepFromRow(r dbsqlc.OperationStep) (operation.Step, error) {
	s := operation.Step{
		Name: r.Name, Kind: operation.Kind(r.Kind), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond,
		MaxRetries: int(r.MaxRetries), State: operation.StepState(r.State), RetryCount: int(r.RetryCount),
		RetryAt: timeVal(r.RetryAt), Message: r.Message, StartedAt: timeVal(r.StartedAt), FinishedAt: timeVal(r.FinishedAt),
	}
	if err := json.Unmarshal(r.Evidence, &s.Evidence); err != nil {
		return s, fmt.Errorf("parse stored evidence: %w", err)
	}
	spec := &baremetalv1.Step{}
	if err := parseStep(r.Spec, spec); err != nil {
		return s, err
	}
	s.Mode = modeOf(spec)
	return s, nil
}

func parseStep(stored []byte, into *baremetalv1.Step) error {
	if err := proto.Unmarshal(stored, into); err != nil {
		return fmt.Errorf("parse stored step: %w", err)
	}
	return nil
}

func modeOf(s *baremetalv1.Step) string {
	switch plan.KindOf(s) {
	case "reboot":
		return s.GetReboot().GetMode()
	case "netboot":
		return s.GetNetboot().GetMode()
	case "set_phase":
		return s.GetSetPhase().GetPhase()
	case "repave":
		return s.GetRepave().GetPath()
	case "rma":
		return s.GetRma().GetAction()
	case "workflow_stage":
		return s.GetWorkflowStage().GetStage()
	case "provider_action":
		return s.GetProviderAction().GetAction()
	default:
		return ""
	}
}

func commandFromRow(r *commandRow) *operation.Command {
	if r == nil {
		return nil
	}
	c := &operation.Command{
		ID: r.CommandID, StepIdx: int(r.StepIdx), Attempt: int(r.Attempt), Kind: operation.Kind(r.Kind),
		State: operation.CommandState(r.State), ExecutorID: r.ExecutorID, ExecutorRole: r.ExecutorRole,
		ExecutorStateID: r.ExecutorStateID, Digest: r.Digest, BootIDBefore: r.BootIDBefore, GrantSeq: uint64(r.GrantSeq),
		Deadline: r.Deadline, SentAt: timeVal(r.SentAt), AckedAt: timeVal(r.AckedAt), GrantedAt: timeVal(r.GrantedAt),
		ClaimedAt: timeVal(r.ClaimedAt), FinishedAt: timeVal(r.FinishedAt), Outcome: operation.Outcome(r.Outcome),
		Reason: r.Reason, Message: r.Message, SettledBy: r.SettledBy,
	}
	// Evidence was checked when it was written; an unreadable one counts as none.
	_ = json.Unmarshal(r.Evidence, &c.Evidence)
	return c
}
