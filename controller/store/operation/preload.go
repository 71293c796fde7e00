package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// preloaded are the rows that changes of several machines begin with, read for all of them at once. The machines and
// operations are locked; they are as they were before any of the changes.
type preloaded struct {
	machines   map[string]dbsqlc.Machine
	operations map[string]dbsqlc.Operation
	steps      map[string][]dbsqlc.OperationStep
	commands   map[string]*convert.CommandRow
	// latest commands of operations whose change names none.
	latest     map[string]*convert.CommandRow
	requests   map[request]dbsqlc.Operation
	conditions map[string][]dbsqlc.MachineCondition
	executors  map[string][]dbsqlc.CandidatesForRow
	boots      map[string]dbsqlc.BootWorldsRow
	// grants are the asks with the last numbers of the memories that ask for a grant. Their rows are locked.
	grants map[memory]grant
	freeze fleet.Freeze
	heard  fleet.Listening
}

// request is a client's own name of an operation on a machine.
type request struct{ machineID, requestID string }

// lockAndLoad locks a change's machine, however long that takes, and loads what the change begins with.
func lockAndLoad(ctx context.Context, q *dbsqlc.Queries, a pgtx.LockKey, now time.Time) (*preloaded, error) {
	locked, err := q.LockMachineFor(ctx, dbsqlc.LockMachineForParams{MachineID: a.MachineID, OperationID: a.OperationID})
	if err != nil {
		return nil, fmt.Errorf("lock machine: %w", err)
	}
	return preload(ctx, q, []pgtx.LockKey{a}, locked, now)
}

// preload reads them for the changes whose machines are locked, in one round trip.
func preload(
	ctx context.Context, q *dbsqlc.Queries, changes []pgtx.LockKey, locked []dbsqlc.Machine, now time.Time,
) (*preloaded, error) {
	f := &preloaded{
		machines: map[string]dbsqlc.Machine{}, operations: map[string]dbsqlc.Operation{},
		steps:    map[string][]dbsqlc.OperationStep{},
		commands: map[string]*convert.CommandRow{}, latest: map[string]*convert.CommandRow{},
		requests:   map[request]dbsqlc.Operation{},
		conditions: map[string][]dbsqlc.MachineCondition{}, executors: map[string][]dbsqlc.CandidatesForRow{},
		boots: map[string]dbsqlc.BootWorldsRow{}, grants: map[memory]grant{},
	}
	candidates := dbsqlc.CandidatesForParams{Now: now}
	for _, m := range locked {
		f.machines[m.MachineID] = m
		candidates.MachineIds = append(candidates.MachineIds, m.MachineID)
		// The installer of another operation than the machine's current one is nobody's executor.
		candidates.OperationIds = append(candidates.OperationIds, pgtx.StrVal(m.CurrentOperationID))
		candidates.Sites = append(candidates.Sites, m.Site)
	}
	var operations []string
	var commands dbsqlc.CommandsForParams
	var requests dbsqlc.OperationsByRequestParams
	var memories dbsqlc.LockGrantSeqsParams
	for _, c := range changes {
		if c.AgentID != "" {
			memories.AgentIds, memories.StateIds = append(memories.AgentIds, c.AgentID), append(memories.StateIds, c.StateID)
		}
		switch {
		case c.OperationID == "":
			requests.TargetIds = append(requests.TargetIds, c.MachineID)
			requests.RequestIds = append(requests.RequestIds, c.RequestID)
			continue
		case c.CommandID == "":
			commands.OperationIds = append(commands.OperationIds, c.OperationID)
		default:
			commands.CommandIds = append(commands.CommandIds, c.CommandID)
		}
		operations = append(operations, c.OperationID)
	}
	reads := []func(*dbsqlc.Queries) error{
		func(q *dbsqlc.Queries) (err error) { f.freeze, err = incarnation.FreezeSince(ctx, q); return err },
		func(q *dbsqlc.Queries) (err error) { f.heard, err = incarnation.ListeningOf(ctx, q); return err },
		func(q *dbsqlc.Queries) error { return f.readConditions(ctx, q, candidates.MachineIds) },
		func(q *dbsqlc.Queries) error { return f.readExecutors(ctx, q, candidates) },
	}
	if len(operations) > 0 {
		// First of all: the others are read as they are under its locks.
		reads = append([]func(*dbsqlc.Queries) error{
			func(q *dbsqlc.Queries) error { return f.lockOperations(ctx, q, operations) },
			func(q *dbsqlc.Queries) error { return f.readSteps(ctx, q, operations) },
			func(q *dbsqlc.Queries) error { return f.readCommands(ctx, q, commands) },
		}, reads...)
	}
	if len(memories.AgentIds) > 0 {
		reads = append(reads, func(q *dbsqlc.Queries) error { return f.lockGrants(ctx, q, memories) })
	}
	if len(requests.TargetIds) > 0 {
		reads = append(reads,
			func(q *dbsqlc.Queries) error { return f.readRequests(ctx, q, requests) },
			func(q *dbsqlc.Queries) error { return f.readBoots(ctx, q, requests.TargetIds) },
		)
	}
	if err := q.Together(ctx, reads...); err != nil {
		return nil, err
	}
	var err error
	if f.freeze, err = incarnation.WithCause(ctx, q, f.freeze); err != nil {
		return nil, err
	}
	return f, f.readChangedBoots(ctx, q)
}

// readChangedBoots reads what machines boot from the network of which an operation changes it.
func (f *preloaded) readChangedBoots(ctx context.Context, q *dbsqlc.Queries) error {
	var machines []string
	for id, steps := range f.steps {
		if changesBoot(steps) {
			machines = append(machines, f.operations[id].TargetID)
		}
	}
	if len(machines) == 0 {
		return nil
	}
	return f.readBoots(ctx, q, machines)
}

func (f *preloaded) readBoots(ctx context.Context, q *dbsqlc.Queries, machines []string) error {
	rows, err := q.BootWorlds(ctx, machines)
	for _, r := range rows {
		f.boots[r.MachineID] = r
	}
	return pgtx.Wrap(err, "read boot assignments")
}

func (f *preloaded) lockOperations(ctx context.Context, q *dbsqlc.Queries, ids []string) error {
	rows, err := q.LockOperations(ctx, ids)
	for _, r := range rows {
		f.operations[r.OperationID] = r
	}
	return pgtx.Wrap(err, "lock operations")
}

func (f *preloaded) readSteps(ctx context.Context, q *dbsqlc.Queries, ids []string) error {
	rows, err := q.StepsOfMany(ctx, ids)
	for _, r := range rows {
		f.steps[r.OperationID] = append(f.steps[r.OperationID], r)
	}
	return pgtx.Wrap(err, "read steps")
}

func (f *preloaded) readCommands(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.CommandsForParams) error {
	rows, err := q.CommandsFor(ctx, p)
	for _, r := range rows {
		c := convert.CommandRow(r)
		f.commands[c.CommandID] = &c
		f.latest[c.OperationID] = &c
	}
	return pgtx.Wrap(err, "read commands")
}

func (f *preloaded) readRequests(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.OperationsByRequestParams) error {
	rows, err := q.OperationsByRequest(ctx, p)
	for _, r := range rows {
		f.requests[request{r.TargetID, r.RequestID}] = r
	}
	return pgtx.Wrap(err, "look for the request")
}

func (f *preloaded) lockGrants(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.LockGrantSeqsParams) error {
	rows, err := q.LockGrantSeqs(ctx, p)
	for _, r := range rows {
		m := memory{r.AgentID, r.StateID}
		f.grants[m] = grant{m, r.LastGrantSeq, r.LastGrantCommandID, r.LastGrantNonce}
	}
	return pgtx.Wrap(err, "lock the numbers of grants")
}

func (f *preloaded) readConditions(ctx context.Context, q *dbsqlc.Queries, machines []string) error {
	rows, err := q.ConditionsOf(ctx, machines)
	for _, r := range rows {
		f.conditions[r.MachineID] = append(f.conditions[r.MachineID], r)
	}
	return pgtx.Wrap(err, "read conditions")
}

func (f *preloaded) readExecutors(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.CandidatesForParams) error {
	rows, err := q.CandidatesFor(ctx, p)
	for _, r := range rows {
		f.executors[r.ForMachine] = append(f.executors[r.ForMachine], r)
	}
	return pgtx.Wrap(err, "read executors")
}

// command is the one that the change is about: the one that it names, or the operation's latest.
func (f *preloaded) command(a pgtx.LockKey) *convert.CommandRow {
	if a.CommandID != "" {
		return f.commands[a.CommandID]
	}
	return f.latest[a.OperationID]
}
