package operation

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
	"github.com/ingot-metal/ingot/internal/ids"
)

// OperationContext is an operation with all that a decision needs, its machine and itself locked.
type OperationContext struct {
	Machine dbsqlc.Machine
	Row     dbsqlc.Operation
	steps   []dbsqlc.OperationStep
	command *convert.CommandRow
	// executors are the agents that might take steps on the machine.
	executors []dbsqlc.CandidatesForRow
	agents    []fleet.Candidate
	// machine is the record of the machine with its conditions.
	machine start.Machine
	Snap    operation.Snapshot
	// grants are the asks with the last numbers of the memories that ask.
	grants map[memory]grant
	// noInstallers: it is known that no installer of the machine has a certificate in force.
	noInstallers bool
	// report is the event, where it is an installer's report.
	report  *operation.Reported
	catalog *catalogstore.Store
	// workflow whose attempt the operation is, as it was before the decision; nil for any other operation.
	workflow *workflow.Workflow
}

// contextOf makes the context of a decision from what was loaded for its key.
func (s *Store) contextOf(
	ctx context.Context, q *dbsqlc.Queries, f *preloaded, key pgtx.LockKey, now time.Time,
) (*OperationContext, error) {
	row, ok := f.operations[key.OperationID]
	if !ok {
		return nil, convert.OperationNotFound(key.OperationID)
	}
	l := &OperationContext{
		Machine: f.machines[row.TargetID], Row: row, steps: f.steps[row.OperationID], command: f.command(key),
		grants: f.grants,
	}
	return l, l.complete(ctx, q, f, now)
}

// complete makes of the rows what a decision is made of.
func (l *OperationContext) complete(ctx context.Context, q *dbsqlc.Queries, f *preloaded, now time.Time) (err error) {
	l.executors = f.executors[l.Machine.MachineID]
	l.agents = startfacts.Agents(l.executors)
	if l.Snap.Op, err = convert.OperationFromRow(l.Row, l.steps); err != nil {
		return err
	}
	l.Snap.Command = convert.CommandFromRow(l.command)
	if l.machine, err = startfacts.Machine(l.Machine, f.conditions[l.Machine.MachineID]); err != nil {
		return err
	}
	for i, s := range l.Snap.Op.Steps {
		l.Snap.Op.Steps[i].Needs = plan.InstallerNeeds(s, l.machine.Spec)
	}
	l.Snap.World, err = l.world(ctx, q, f, now)
	return err
}

func (l *OperationContext) world(
	ctx context.Context, q *dbsqlc.Queries, f *preloaded, now time.Time,
) (_ operation.World, err error) {
	w := operation.World{
		Machine:      l.machine.Facts,
		Provider:     pgtx.OrText(l.Machine.Provider, fleet.AgentProvider),
		TargetBootID: l.Machine.BootID, TargetAgentID: pgtx.StrVal(l.Machine.AgentID),
		NewCommandID: ids.New(ids.Command),
	}
	w.Machine.Freeze = f.freeze
	w.CaughtUpAt = f.heard.CatchingUpUntil(now)
	w.Install = operation.Install{Counted: countsAttempts(l.Machine, l.Snap.Op), Failed: int(l.Machine.InstallAttempts),
		Max: node.MaxAttempts}
	l.boot(f, &w)
	if err := l.readWorkflow(ctx, q, &w); err != nil {
		return w, err
	}
	if w.SlotHeld, err = l.slot(ctx, q, now); err != nil {
		return w, err
	}
	w.Candidates = start.Candidates(l.machine, l.agents, l.Snap.Op.Steps, w.Provider)
	for _, c := range w.Candidates {
		if c.AgentID == w.TargetAgentID {
			w.TargetAgentLive = c.Live
		}
		if l.command != nil && c.AgentID == l.command.ExecutorID {
			w.ExecutorLive, w.ExecutorSilentFrom = c.Live, c.SilentFrom()
		}
	}
	w.Unfit, err = l.unfitNow(ctx, q)
	return w, err
}
