package engine

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/controller/engine/spans"
	"github.com/ingot-metal/ingot/controller/engine/stuck"
	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// Config is what an engine works with.
type Config struct {
	Store    *store.Store
	Sessions *session.Registry
	Clock    clock.Clock
	// Monotonic judges the lease, and is never set; nil means Clock.
	Monotonic    clock.Clock
	Logger       *slog.Logger
	ControllerID string
	Version      string
	// Hostname is of the machine that it runs on, for operators.
	Hostname string
	GrantKey ed25519.PrivateKey
	// OpenArgument opens a secret argument of a script; nil opens none.
	OpenArgument func(sealed string) (string, error)
	// Workers bounds the jobs that run at once; 0 means 64. Evaluations that run together are stored together.
	Workers int
	// Lease is how long the controller counts as alive after a renewal; 0 means 15 s.
	Lease time.Duration
	// Heartbeat is the interval that agents are told; 0 means 10 s.
	Heartbeat time.Duration
	// MissedBeats is how many heartbeats an agent may miss before it counts as gone; 0 means 3.
	MissedBeats int
	// Admission is the rate at which a controller opens sessions; a zero rate means no limit.
	Admission reconnect.Limits
	// Serving reports whether agents can open sessions here; nil: they always can.
	Serving func() bool
	// Webhooks sends events to other systems; nil sends none.
	Webhooks *delivery.Config
	// Retention is how long logs and states of machines are kept.
	Retention Retention
	// Marks keeps how far the database was seen to get; nil keeps it in memory alone.
	Marks Marks
	// Observer is told what happens. May be nil.
	Observer Observer
	// Traces writes the traces of operations; nil writes none.
	Traces *traces.Tracer
}

// Observer is told what happens, for metrics. Times count from the creation of the operation or of the command.
type Observer interface {
	Ended(operationType, outcome string, took time.Duration)
	Dispatched(commandKind string, took time.Duration)
	Done(commandKind string, took time.Duration)
	// Rescued counts jobs that were taken from controllers that are gone.
	Rescued(n int)
	// Stuck is told again and again how many operations are stuck.
	Stuck(n int)
	// Sent counts tries of webhook deliveries by outcome: delivered, retried, dead.
	Sent(outcome string)
}

type noObserver struct{}

func (noObserver) Ended(string, string, time.Duration) {}
func (noObserver) Dispatched(string, time.Duration)    {}
func (noObserver) Done(string, time.Duration)          {}
func (noObserver) Rescued(int)                         {}
func (noObserver) Stuck(int)                           {}
func (noObserver) Sent(string)                         {}

// Engine moves operations: it composes the parts that do, and runs them. It is safe for concurrent use.
type Engine struct {
	common
	// Requests carries out what clients ask for.
	Requests *Requests
	// Agents takes what agents send.
	Agents *Agents

	leases      *leases
	peers       *peers
	sender      *commandSender
	position    *positionCheck
	scan        *sessionScan
	revocations *revocations
	scheduler   *scheduler
	retention   *retention
	repairs     *repairs
	slots       *budgetSlots
	stuck       stuck.Search
	// signals wake the reconcilers.
	signals signals
}

// filled returns the configuration with its defaults.
func (c Config) filled() Config {
	if c.Workers == 0 {
		c.Workers = 64
	}
	if c.Lease == 0 {
		c.Lease = 15 * time.Second
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 10 * time.Second
	}
	if c.MissedBeats == 0 {
		c.MissedBeats = 3
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Serving == nil {
		c.Serving = func() bool { return true }
	}
	if c.Marks == nil {
		c.Marks = noMarks{}
	}
	if c.Monotonic == nil {
		c.Monotonic = c.Clock
	}
	return c
}

// New prepares an engine; Run starts it.
func New(c Config) (*Engine, error) {
	c = c.filled()
	st, all := c.Store, common{cfg: c, log: c.Logger, clock: c.Clock}
	signals, inbox, index := newSignals(), &outbox{waiting: newSignal()}, &commandIndex{}
	recorder := spans.New(c.Traces, c.ControllerID, c.Clock)
	e := &Engine{common: all, signals: signals}
	changes := newChanges(signals.changed)
	alive := &lease{length: c.Lease, clock: c.Monotonic}
	e.leases = &leases{
		common: all, sessions: st.Sessions, jobs: st.Jobs, lease: alive,
		written: lease{length: mostUnwritten, clock: c.Monotonic},
	}
	e.revocations = &revocations{common: all, agents: st.Agents, revoked: signals.revoked}
	e.peers = &peers{
		common: all, db: st.DB, sessions: st.Sessions, revocations: e.revocations, changes: changes, signals: signals,
		inbox: inbox,
	}
	e.sender = &commandSender{
		common: all, sessions: st.Sessions, lease: alive, peers: e.peers, outbox: outbox{waiting: newSignal()}, inbox: inbox,
	}
	decisions := &decisions{
		common: all, operations: st.Operations, sender: e.sender, peers: e.peers, changes: changes, signals: signals,
		spans: recorder, index: index,
	}
	e.position = &positionCheck{common: all, incarnations: st.Incarnations, changes: changes, doubt: signals.position}
	e.Agents = &Agents{
		common: all, operations: st.Operations, sessions: st.Sessions, decisions: decisions, sender: e.sender,
		position: e.position, lease: alive, peers: e.peers, changes: changes, signals: signals, index: index,
		acks: acks{waiting: map[string]waitingAck{}},
	}
	e.Requests = &Requests{
		common: all, operations: st.Operations, queries: st.OperationQueries, workflows: st.Workflows, nodes: st.Nodes,
		rollouts: st.Rollouts, agents: st.Agents, decisions: decisions, changes: changes, signals: signals,
	}
	e.scan = &sessionScan{
		common: all, lease: alive, peers: e.peers, sessions: st.Sessions, nodestates: st.NodeStates, sites: st.Sites,
		incarnations: st.Incarnations,
	}
	e.retention = &retention{
		common: all, access: st.Access, approvals: st.Approvals, credentials: st.Credentials, logs: st.Logs,
		changes: st.MachineFeed, past: st.Past,
	}
	e.repairs = &repairs{
		common: all, nodes: st.Nodes, nodestates: st.NodeStates, operations: st.Operations,
		workflowstates: st.WorkflowStates, decisions: decisions, changes: changes,
	}
	e.slots = &budgetSlots{common: all, budgets: st.Budgets, room: signals.room}
	e.stuck = stuck.Search{Store: st.Explain, Clock: c.Clock, Log: c.Logger, Found: c.Observer.Stuck}
	e.scheduler = &scheduler{
		common:     all,
		jobs:       st.Jobs,
		operations: st.Operations,
		queries:    st.OperationQueries,
		rollouts:   st.Rollouts,
		sessions:   st.Sessions,
		decisions:  decisions,
		spans:      recorder,
		first:      newFirstRuns(),
	}
	rollouts := &rollouts{
		common: all, rollouts: st.Rollouts, operations: st.Operations, decisions: decisions, changes: changes,
	}
	if err := e.scheduler.openRiver(st, rollouts, e.retention, changes.Changed); err != nil {
		return nil, err
	}
	st.Operations.OnCreated(e.scheduler.enqueueCreated, e.scheduler.takeCreated)
	st.Sessions.DecideOpened(st.Operations.DecideNoted)
	st.Operations.First.While(e.scheduler.first.running.Load)
	st.Operations.OnApplied(func(a *operationstore.Applied) { decisions.applied(context.Background(), a, time.Time{}) })
	st.Budgets.OnRoom(signals.room.fire)
	st.Incarnations.OnDoubt(signals.position.fire)
	return e, nil
}

// RenewLease stores in Postgres that this controller is alive.
func (e *Engine) RenewLease(ctx context.Context) error { return e.leases.renew(ctx) }

// LeaseFresh reports whether this controller may send commands and grants.
func (e *Engine) LeaseFresh() bool { return e.leases.lease.Fresh() }

// Written reports whether the database has stored something of this controller in the last four seconds.
func (e *Engine) Written() bool { return e.leases.writes() }

// Peers counts the other controllers that are alive.
func (e *Engine) Peers() int { return e.peers.count() }
