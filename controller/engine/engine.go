package engine

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/controller/engine/spans"
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
	// Monotonic judges the lease, and is set by nobody; nil means Clock.
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
	// Retention says how long logs and states of machines are kept.
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

// Engine moves operations. It is safe for concurrent use.
type Engine struct {
	cfg   Config
	store *store.Store
	log   *slog.Logger
	clock clock.Clock
	river *river.Client[pgx.Tx]
	lease lease
	// written is when the database last stored this controller's lease of jobs.
	written lease
	acks    acks
	spans   *spans.Recorder
	// places are the operations of commands that were sent from here.
	places commandIndex
	// webhooks sends events to other systems; nil sends none.
	webhooks *delivery.Publisher
	// signals wake the reconcilers.
	signals signals

	// violations that have been reported, by workflow; only their loop reads it.
	violations map[string]bool

	// peers counts the other controllers that are alive; slowest is the longest heartbeat interval in use, in nanoseconds.
	peers, slowest atomic.Int64
	// interval is the heartbeat interval that new sessions are told, told the longest one that any was, in nanoseconds.
	interval, told atomic.Int64
	// agents counts those that may come back after a time in which no controller listened.
	agents atomic.Int64
	// outbox holds what other controllers should send, inbox what they have asked us to.
	outbox, inbox outbox
	rounds        sessionScan
	first         *firstRuns

	mu      sync.Mutex
	changed chan struct{}
}

// New prepares an engine; Run starts it.
func New(c Config) (*Engine, error) {
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
	e := &Engine{
		cfg: c, store: c.Store, log: c.Logger, clock: c.Clock, changed: make(chan struct{}),
		acks:    acks{waiting: map[string]waitingAck{}},
		spans:   spans.New(c.Traces, c.ControllerID, c.Clock),
		lease:   lease{length: c.Lease, clock: c.Monotonic},
		written: lease{length: mostUnwritten, clock: c.Monotonic},
		signals: newSignals(), outbox: outbox{waiting: newSignal()},
		inbox: outbox{waiting: newSignal()}, first: newFirstRuns(),
	}
	var err error
	if e.river, err = newRiver(e); err != nil {
		return nil, err
	}
	c.Store.Operations.OnCreated(e.enqueueCreated, e.takeCreated)
	c.Store.Operations.OnApplied(func(a *operationstore.Applied) { e.applied(context.Background(), a, time.Time{}) })
	c.Store.Budgets.OnRoom(e.signals.room.fire)
	c.Store.Incarnations.OnDoubt(e.signals.position.fire)
	return e, nil
}

// Changed is closed at the next change that this controller commits, or hears of.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// publish tells of a change, here and on other controllers.
func (e *Engine) publish() {
	e.wake()
	e.signals.changed.fire()
}

// wake has everybody here look who waits for changes.
func (e *Engine) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// Start creates an operation, or returns the one that the same request has made before.
func (e *Engine) Start(ctx context.Context, r operationstore.StartRequest) (*baremetalv1.Operation, error) {
	op, created, err := e.store.Operations.Start(ctx, r, e.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	if created {
		e.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", r.MachineID, "type",
			string(r.Type))
		e.publish()
	}
	return op, err
}

// Cancel asks an operation to stop, and returns it as it is then.
func (e *Engine) Cancel(ctx context.Context, operationID, actor string) (*baremetalv1.Operation, error) {
	began := e.clock.Now()
	a, err := e.store.Operations.Cancel(ctx, operationID, actor, began)
	if err != nil {
		return nil, err
	}
	traces.Concerns(ctx, operationID)
	e.applied(ctx, a, began)
	if err := a.Refused(); err != nil {
		return nil, err
	}
	return e.store.OperationQueries.GetOperation(ctx, operationID)
}

// Settle records an operator's word on an unknown outcome.
func (e *Engine) Settle(
	ctx context.Context, machineID, commandID, verdict, actor, comment string,
) (*baremetalv1.Machine, error) {
	m, err := e.store.Operations.Settle(ctx, machineID, commandID, verdict, actor, comment, e.clock.Now())
	e.publish()
	return m, err
}

// RevokeAgent revokes certificates and ends the sessions that use them.
func (e *Engine) RevokeAgent(ctx context.Context, agentID, fingerprint, actor, why string) error {
	gone, err := e.store.Agents.RevokeAgent(ctx, agentID, fingerprint, actor, why, e.clock.Now())
	if err != nil {
		return err
	}
	e.log.Info("agent revoked", "agent_id", agentID)
	e.revoked(ctx, gone)
	return nil
}

// Handle brings an event to an operation and carries out what is decided.
func (e *Engine) Handle(ctx context.Context, operationID string, ev operation.Event) (*operationstore.Applied, error) {
	began := e.clock.Now()
	a, err := e.store.Operations.Decide(ctx, operationID, ev, began)
	if err != nil {
		return nil, err
	}
	e.applied(ctx, a, began)
	return a, nil
}

// applied does what follows a decision that is committed.
func (e *Engine) applied(ctx context.Context, a *operationstore.Applied, began time.Time) {
	e.spans.Applied(ctx, a, began)
	e.afterApply(a)
	e.revoked(ctx, a.Revoked)
}

// revoked ends the sessions of certificates that were revoked, here and on the other controllers.
func (e *Engine) revoked(ctx context.Context, fingerprints []string) {
	if len(fingerprints) == 0 {
		return
	}
	n := e.cfg.Sessions.CloseFingerprints(fingerprints, session.ErrRevoked)
	if e.peers.Load() > 0 {
		if err := e.announce(ctx, announceRevoked); err != nil {
			e.log.Warn("revocation not announced; other controllers find it within a second", "error", err.Error())
		}
	}
	e.log.Info("certificates revoked", "certificates", len(fingerprints), "sessions_ended", n)
}

// afterApply tells agents, watchers and metrics what has been committed.
func (e *Engine) afterApply(a *operationstore.Applied) {
	e.places.note(a)
	for _, o := range a.Send {
		e.SendCommand(o)
	}
	if id := a.Decision.CancelOnAgent; id != "" && a.CancelExecutor != "" {
		if !e.sendHere(a.CancelExecutor, cancelMessage(id)) {
			e.forward(a.CancelExecutor, handCancel+id)
		}
	}
	e.observeCommand(a.Command)
	if !a.Decision.OpChanged {
		return
	}
	e.publish()
	if operation.IsTerminal(a.Phase) {
		e.signals.workEnded()
		e.log.Info("operation ended", "operation_id", a.OperationID, "machine_id", a.MachineID, "type", string(a.Type),
			"phase", string(a.Phase), "stage", a.Decision.Op.CurrentStage, "reason", reasonOf(a.Decision.Op))
		e.cfg.Observer.Ended(string(a.Type), string(a.Phase), a.FinishedAt.Sub(a.CreatedAt))
	}
}

// observeCommand measures a command at the decision that moved it.
func (e *Engine) observeCommand(c *operation.Command) {
	switch {
	case c == nil || c.SentAt.IsZero():
	case c.State == operation.Done && !c.FinishedAt.IsZero():
		e.cfg.Observer.Done(string(c.Kind), c.FinishedAt.Sub(c.SentAt))
	case spans.AckedNow(c):
		e.cfg.Observer.Dispatched(string(c.Kind), c.AckedAt.Sub(c.SentAt))
	}
}

func reasonOf(op operation.Operation) string {
	if op.Error == nil {
		return ""
	}
	return op.Error.Code
}

// SendCommand sends a command that has been committed as sent, if its executor is connected here, or hands it over to
// the controller where it is. If it is connected nowhere, the executor gets it with its next session.
func (e *Engine) SendCommand(o operationstore.Outgoing) {
	if !e.sendHere(o.ExecutorID, e.commandMessage(o)) {
		e.forward(o.ExecutorID, handSend+o.CommandID)
	}
}

// sendHere reports whether the agent's session is here. While the lease is in doubt it sends nothing; the look for what
// is unheard makes up for it.
func (e *Engine) sendHere(agentID string, m *fleetv1.ControllerMessage) bool {
	s := e.cfg.Sessions.Get(agentID)
	if s == nil {
		return false
	}
	if e.lease.Fresh() {
		s.Send(m)
	}
	return true
}
