package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// strangersFor is how long an unknown MAC address that was seen bears on what a machine of its site waits for.
	strangersFor = time.Hour
	// defaultLease is what segments have that name no lease time.
	defaultLease = time.Hour
	// measured is how many of the newest operations the normal durations are made of.
	measured = 2000
)

// ExplainFacts reads all that bears on why a machine is as it is, in one snapshot of the database. operationID asks for
// an operation; machineID may be empty then. Normal is left out.
func (s *Store) ExplainFacts(ctx context.Context, machineID, operationID string, now time.Time) (explain.Facts, error) {
	g := gather{now: now, shares: &s.budgets.Counts}
	err := pgx.BeginTxFunc(ctx, s.db.Pool(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			g.q = s.db.Q.WithTx(tx)
			return g.all(ctx, machineID, operationID)
		})
	if err != nil {
		return explain.Facts{}, fmt.Errorf("gather facts: %w", err)
	}
	if err := s.explainOffers(ctx, &g); err != nil {
		return explain.Facts{}, fmt.Errorf("ask what may be offered: %w", err)
	}
	return g.f, nil
}

// explainedAtOnce is how many machines of a page are read side by side: each takes a connection of the pool.
const explainedAtOnce = 4

// ExplainFactsOf is ExplainFacts of several machines, in their order, each in a snapshot of its own. Machines that are
// not there any more are left out.
func (s *Store) ExplainFactsOf(ctx context.Context, machineIDs []string, now time.Time) ([]explain.Facts, error) {
	out := make([]explain.Facts, len(machineIDs))
	g, _ := task.New(ctx) // each task is given the context that ends with the group
	for part := range explainedAtOnce {
		g.Go("explain machines", func(ctx context.Context) error {
			for i := part; i < len(out); i += explainedAtOnce {
				facts, err := s.ExplainFacts(ctx, machineIDs[i], "", now)
				if err != nil && !failure.HasReason(err, "MACHINE_NOT_FOUND") {
					return err
				}
				out[i] = facts
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(f explain.Facts) bool {
		return f.Machine == nil || f.Machine.GetDeletedAt() != nil
	}), nil
}

// gather reads the facts of one machine.
type gather struct {
	q   *dbsqlc.Queries
	now time.Time
	// shares are counted anew only once in a while.
	shares *budgetstore.MachineCounts
	m      dbsqlc.Machine
	f      explain.Facts
	// workflowParams are those of the machine's open workflow.
	workflowParams map[string]string
}

func (g *gather) all(ctx context.Context, machineID, operationID string) error {
	g.f.Now = g.now
	for _, read := range []func(context.Context) error{
		func(ctx context.Context) error { return g.machine(ctx, machineID, operationID) },
		func(ctx context.Context) error { return g.operation(ctx, operationID) },
		g.commands, g.agents, g.checks, g.site, g.boot, g.fence, g.workflow, g.fleet,
	} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (g *gather) machine(ctx context.Context, machineID, operationID string) error {
	if machineID == "" {
		op, err := g.q.GetOperation(ctx, operationID)
		if errors.Is(err, pgx.ErrNoRows) {
			return convert.OperationNotFound(operationID)
		}
		if err != nil {
			return fmt.Errorf("read operation: %w", err)
		}
		machineID = op.TargetID
	}
	var err error
	g.m, err = g.q.GetMachine(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return convert.MachineNotFound(machineID)
	}
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	conds, err := g.q.ConditionsOf(ctx, []string{machineID})
	if err != nil {
		return fmt.Errorf("read conditions: %w", err)
	}
	witnesses, err := machinestore.Witnesses(ctx, g.q, []string{g.m.Site})
	if err != nil {
		return err
	}
	g.f.Machine, err = convert.MachineMessage(g.m, conds, witnesses[g.m.Site])
	if err != nil {
		return err
	}
	said, err := machinestore.ProviderStatuses(ctx, g.q, []string{machineID})
	if err != nil {
		return err
	}
	g.f.Machine.Status.Provider = said[machineID]
	if err := g.causes(ctx); err != nil {
		return err
	}
	g.f.Model, err = g.q.ModelOf(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read model: %w", err)
	}
	return nil
}

// operation reads the one that was asked for, the active one, or the one that the machine's state comes from.
func (g *gather) operation(ctx context.Context, id string) error {
	rows, err := g.q.RecentOperationsOf(ctx, g.m.MachineID)
	if err != nil {
		return fmt.Errorf("read operations: %w", err)
	}
	if g.f.Named = id != ""; g.f.Named {
		row, err := g.q.GetOperation(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && row.TargetID != g.m.MachineID {
			return convert.OperationNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("read operation: %w", err)
		}
		rows = []dbsqlc.Operation{row}
	}
	if len(rows) == 0 {
		return nil
	}
	return g.take(ctx, g.choose(rows))
}

// choose returns the active one of a machine's operations, or the one that left the machine in need of an operator, or
// the newest.
func (g *gather) choose(rows []dbsqlc.Operation) dbsqlc.Operation {
	for _, r := range rows {
		if r.FinishedAt == nil {
			return r
		}
	}
	for _, c := range g.f.Causes {
		for _, r := range rows {
			if r.OperationID == c.OperationID {
				return r
			}
		}
	}
	return rows[0]
}

func (g *gather) take(ctx context.Context, row dbsqlc.Operation) error {
	steps, err := g.q.StepsOf(ctx, row.OperationID)
	if err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	op, err := convert.OperationFromRow(row, steps)
	if err != nil {
		return err
	}
	g.f.Op, g.f.PlanID, g.f.Params = &op, row.PlanID, convert.JSONToMap(row.Params)
	progress, err := g.q.ProgressOf(ctx, []string{row.OperationID})
	if err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	for _, p := range progress {
		if p.Idx == row.CurrentStep {
			g.f.Progress = explain.Progress{Percent: int(p.Percent), Message: p.Message, At: p.UpdatedAt}
		}
	}
	last, err := g.q.LastEventOf(ctx, row.OperationID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read last event: %w", err)
	}
	g.f.Last = explain.Event{At: last.Ts, Kind: last.Kind, Message: last.Message}
	return nil
}

func (g *gather) commands(ctx context.Context) error {
	if g.f.Op == nil {
		return nil
	}
	rows, err := g.q.CommandsToExplain(ctx, g.f.Op.ID)
	if err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	for _, r := range rows {
		c := convert.CommandRow(r)
		g.f.Commands = append(g.f.Commands, *convert.CommandFromRow(&c))
	}
	return nil
}

func (g *gather) agents(ctx context.Context) error {
	p := dbsqlc.AgentsToExplainParams{Now: g.now, MachineID: &g.m.MachineID, Site: g.m.Site}
	if g.f.Op != nil {
		p.OperationID = &g.f.Op.ID
	}
	rows, err := g.q.AgentsToExplain(ctx, p)
	if err != nil {
		return fmt.Errorf("read agents: %w", err)
	}
	for _, r := range rows {
		a := explain.Agent{
			Candidate: fleet.Candidate{
				AgentID: r.AgentID, Role: r.Role, StateID: r.StateID, Capabilities: r.Capabilities, Simulated: r.Simulated,
				Live:     r.Live,
				LastSeen: pgtx.TimeVal(r.LastHeartbeatAt), NotHeardUntil: pgtx.TimeVal(r.SilentFrom),
				OperationID: pgtx.StrVal(r.OperationID), BootID: r.BootID,
				ImageDigest: r.OsImageDigest, Hardware: r.HardwareFingerprint,
			},
			Locked: r.Locked, Ended: pgtx.TimeVal(r.EndedAt), CertRevoked: pgtx.TimeVal(r.RevokedAt),
		}
		if r.NotAfter.Unix() > 0 {
			a.CertExpires = r.NotAfter
		}
		g.f.Agents = append(g.f.Agents, a)
	}
	return nil
}

// checks evaluates the health checks of a node on its way in.
func (g *gather) checks(ctx context.Context) (err error) {
	if !nodestate.OnTheWayIn(g.m) || g.m.AgentID == nil {
		return nil
	}
	a := g.f.Agent(*g.m.AgentID)
	g.f.Checks, err = nodestate.HealthChecks(ctx, g.q, g.m, a != nil && a.Live)
	return err
}

func (g *gather) site(ctx context.Context) error {
	row, err := g.q.SiteRow(ctx, g.m.Site)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read site: %w", err)
	}
	site := &explain.Site{Name: row.Site, Revision: row.Revision, Applied: row.AppliedRevision,
		AppliedAt: pgtx.TimeVal(row.AppliedAt), SilentSince: pgtx.TimeVal(row.SilentSince)}
	if site.Segments, err = segmentsToExplain(row); err != nil {
		return err
	}
	leases, err := g.q.LeasesOfMachine(ctx, dbsqlc.LeasesOfMachineParams{MachineID: g.m.MachineID, Site: g.m.Site})
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	for _, l := range leases {
		site.Leases = append(site.Leases, explain.Lease{
			MAC: l.Mac, Segment: l.Segment, Address: l.Address, Given: l.ExpiresAt.Add(-leaseTime(site.Segments, l.Segment)),
		})
	}
	seen, err := g.q.StrangersOfSite(ctx, dbsqlc.StrangersOfSiteParams{Site: g.m.Site,
		SeenAfter: g.now.Add(-strangersFor)})
	if err != nil {
		return fmt.Errorf("read discovered machines: %w", err)
	}
	for _, d := range seen {
		site.Strangers = append(site.Strangers, explain.UnknownAgent{MAC: d.Mac, Segment: d.Segment, LastSeen: d.LastSeenAt})
	}
	g.f.Site = site
	return nil
}

// segmentsToExplain returns the configured segments with the observations of the site's agent.
func segmentsToExplain(row dbsqlc.Site) ([]explain.Segment, error) {
	configured, err := sitestore.SegmentsToServe(row.Segments)
	if err != nil {
		return nil, err
	}
	observed, err := convert.FromJSONList[fleetv1.SegmentObservation](row.Observations)
	if err != nil {
		return nil, err
	}
	byName := map[string]*fleetv1.SegmentObservation{}
	for _, o := range observed {
		byName[o.GetSegment()] = o
	}
	out := make([]explain.Segment, 0, len(configured))
	for _, c := range configured {
		o := byName[c.GetName()]
		g := explain.Segment{
			Name: c.GetName(), Mode: c.GetMode(), State: o.GetState(), ForeignDHCP: o.GetForeignDhcpServer(),
			PoolSize: int(o.GetPoolSize()), PoolUsed: int(o.GetPoolUsed()),
			LeaseTime: time.Duration(c.GetLeaseSeconds()) * time.Second,
		}
		if g.LeaseTime == 0 {
			g.LeaseTime = defaultLease
		}
		out = append(out, g)
	}
	return out, nil
}

func leaseTime(segments []explain.Segment, name string) time.Duration {
	for _, g := range segments {
		if g.Name == name {
			return g.LeaseTime
		}
	}
	return defaultLease
}

func (g *gather) boot(ctx context.Context) error {
	b, err := g.q.BootOf(ctx, g.m.MachineID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		g.f.Boot.Mode = operation.BootDisk
	case err != nil:
		return fmt.Errorf("read boot assignment: %w", err)
	default:
		g.f.Boot = explain.Boot{
			Mode: b.Mode, OperationID: pgtx.StrVal(b.OperationID), Revision: b.Revision, UpdatedAt: b.UpdatedAt,
			InstallerAgentID: pgtx.StrVal(b.InstallerAgentID), ContenderAt: pgtx.TimeVal(b.ContenderAt),
			Impostor: explain.Impostor{Reason: b.ImpostorReason, Message: b.ImpostorMessage, At: pgtx.TimeVal(b.ImpostorAt)},
		}
	}
	g.f.InstallerReady, err = g.q.HasInstaller(ctx)
	if err != nil {
		return fmt.Errorf("look for an installer: %w", err)
	}
	return nil
}

func (g *gather) fence(ctx context.Context) error {
	if g.m.UnresolvedCommandID == nil {
		return nil
	}
	row, err := g.q.GetCommand(ctx, *g.m.UnresolvedCommandID)
	if err != nil {
		return fmt.Errorf("read unresolved command: %w", err)
	}
	g.f.Unresolved, g.f.UnresolvedOp = convert.CommandFromRow(&row), row.OperationID
	return nil
}

func (g *gather) workflow(ctx context.Context) error {
	row, err := g.q.OpenWorkflowOf(ctx, g.m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read workflow: %w", err)
	}
	w, err := workflowstate.WorkflowFromRow(row)
	if err != nil {
		return err
	}
	g.f.Workflow, g.f.WorkflowSince, g.workflowParams = &w, row.UpdatedAt, convert.JSONToMap(row.Params)
	return nil
}

func (g *gather) fleet(ctx context.Context) error {
	var err error
	if g.f.Freeze, err = incarnation.FreezeOf(ctx, g.q); err != nil {
		return err
	}
	if err := g.words(ctx); err != nil {
		return err
	}
	n, err := g.q.LiveControllers(ctx, g.now)
	if err != nil {
		return fmt.Errorf("count controllers: %w", err)
	}
	g.f.Controllers = int(n)
	if err := g.rollout(ctx); err != nil {
		return err
	}
	return g.budget(ctx)
}

// budget looks for what stands in the way of an operation that waits for a slot.
func (g *gather) budget(ctx context.Context) error {
	if g.f.Op == nil || g.f.Op.WaitReason != operation.WaitBudget {
		return nil
	}
	v, err := budgetstore.BudgetVerdict(ctx, g.q, g.shares, g.f.Op.ID, g.now)
	if err != nil {
		return err
	}
	if v != nil && !v.Admitted {
		g.f.Budget, g.f.BudgetUntil = v.String(), v.Until
		if v.Raised != nil {
			g.f.BudgetName, g.f.BudgetRaise = v.Rule.Name, budgetFlags(*v.Raised)
		}
	}
	if g.f.LeftBehind, err = g.q.SlotsLeftBehind(ctx, maxLeftBehind); err != nil {
		return fmt.Errorf("read slots of operations that have ended: %w", err)
	}
	if r := g.f.Rollout; r != nil && r.State != string(rollout.Running) {
		g.f.Budget = "rollout " + r.ID + " is " + r.State + ", and its operations take no slots meanwhile"
	}
	return nil
}

// rollout looks for one that has the machine, or comes to it.
func (g *gather) rollout(ctx context.Context) error {
	r, err := g.q.RolloutOfMachine(ctx, g.m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rollout: %w", err)
	}
	g.f.Rollout = &explain.Rollout{
		ID: r.RolloutID, State: r.State, WaitReason: r.WaitReason, Wave: int(r.Wave), At: int(r.WaveNow), Waves: int(r.Waves),
		Waiting: r.MachineState == "PENDING", Digest: r.Digest, CreatedBy: r.CreatedBy,
	}
	return nil
}

// StepNormals measures how long steps of each kind take, over the newest operations.
func (s *Store) StepNormals(ctx context.Context) (explain.Baselines, error) {
	rows, err := s.db.Q.StepDurations(ctx, measured)
	if err != nil {
		return explain.Baselines{}, fmt.Errorf("read step durations: %w", err)
	}
	samples := make([]explain.Sample, 0, len(rows))
	for _, r := range rows {
		samples = append(samples, explain.Sample{
			Kind: kind.Kind(r.Kind), Group: r.MachineGroup, Model: r.Model, Simulated: r.Simulated,
			Took: time.Duration(r.TookMs) * time.Millisecond,
		})
	}
	return explain.Measure(samples), nil
}

// LongStep is the current step of an active operation that has run for long.
type LongStep struct {
	OperationID, MachineID, Step string
	Kind                         kind.Kind
	StartedAt                    time.Time
	Group, Model                 string
	Simulated                    bool
}

// LongSteps returns up to limit active operations whose current step has run since before a time, the longest first.
func (s *Store) LongSteps(ctx context.Context, before time.Time, limit int32) ([]LongStep, error) {
	rows, err := s.db.Q.LongOperations(ctx, dbsqlc.LongOperationsParams{StartedBefore: &before, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("read long operations: %w", err)
	}
	out := make([]LongStep, 0, len(rows))
	for _, r := range rows {
		out = append(out, LongStep{
			OperationID: r.OperationID, MachineID: r.TargetID, Step: r.Name, Kind: kind.Kind(r.Kind),
			StartedAt: pgtx.TimeVal(r.StartedAt),
			Group:     r.MachineGroup, Model: r.Model, Simulated: r.Simulated,
		})
	}
	return out, nil
}

// NoteStuck writes into an operation's log that a step is stuck, once for each step. It returns false if it is there
// already.
func (s *Store) NoteStuck(ctx context.Context, operationID, step, text string, now time.Time) (bool, error) {
	written := false
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if _, err := q.LockOperationForLog(ctx, dbsqlc.LockOperationForLogParams{OperationID: operationID}); err != nil {
			return fmt.Errorf("lock operation: %w", err)
		}
		n, err := q.NoteOnce(ctx, dbsqlc.NoteOnceParams{OperationID: operationID, Ts: now, Step: step,
			Data: []byte(text + "\n")})
		if err != nil {
			return fmt.Errorf("append to log: %w", err)
		}
		written = n > 0
		return nil
	})
	return written, err
}
