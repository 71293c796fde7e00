package dispatch

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/internal/batch"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// The moments worth dying at. A failpoint that returns an error ends the dispatcher, as a crash would.
var (
	afterReceived      = failpoint.Register("agent.after-received")
	beforeAck          = failpoint.Register("agent.before-ack")
	beforeGrantRequest = failpoint.Register("agent.before-grant-request")
	afterGrant         = failpoint.Register("agent.after-grant")
	afterIntent        = failpoint.Register("agent.after-intent")
	beforeResultStored = failpoint.Register("agent.before-result-stored")
	afterResultStored  = failpoint.Register("agent.after-result-stored")
	beforeResultSent   = failpoint.Register("agent.before-result-sent")
	afterResultAck     = failpoint.Register("agent.after-result-ack")
)

// commandAgain makes a command come again while it is executed, as a controller may send it that did not hear the
// acknowledgement.
var commandAgain = failpoint.Register("wire.command-again")

// Resolver returns the executor of a command, or the result that refuses it.
type Resolver func(spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result)

// Config is what a Dispatcher needs.
type Config struct {
	Store   Store
	Resolve Resolver
	// Harm returns the worst that a command may do to its machine; nil: no action is harmless.
	Harm      func(spec *fleetv1.CommandSpec) executor.Harm
	AgentID   string
	BootID    string
	Simulated bool
	Log       *slog.Logger
	Clock     clock.Clock
	// Boottime is the clock of the grant window; clock.Boottime outside tests.
	Boottime func() time.Duration

	// ResendEvery is how often an unacknowledged result is sent again; 0 means 5 s.
	ResendEvery time.Duration
	// GrantWait is how long an ask waits before the next one; 0 means 10 s.
	GrantWait time.Duration
	// StopGrace is how long an executor may take to end after its time is up; 0 means 10 s.
	StopGrace time.Duration
	// Quiet leaves out log lines of commands. For benchmarks.
	Quiet bool
	// Traces writes spans of commands; nil writes none.
	Traces *traces.Tracer
}

// Link is a session as the dispatcher sees it. Send queues and never blocks; what doesn't arrive is sent again.
type Link interface {
	Send(m *fleetv1.AgentMessage)
}

// Dispatcher executes commands. Run must be running for anything to happen.
type Dispatcher struct {
	cfg     Config
	lanes   *targetQueue
	stateID string
	group   *task.Group
	ready   chan struct{} // closed when Run has taken over what the store holds
	asks    batch.Group[*asking]

	mu       sync.Mutex
	link     Link
	keys     []ed25519.PublicKey
	attached chan struct{} // closed while there is a link
	detached chan struct{} // closed while there is none
	// Controller time at Welcome and the boot-time clock then.
	controllerTime time.Time
	controllerAt   time.Duration
	jobs           map[string]*job
	unacked        map[string]*unacked
	parked         map[string]*fleetv1.Command // not durable for want of space
}

// New makes a Dispatcher.
func New(cfg Config) *Dispatcher {
	cfg.ResendEvery = cmp.Or(cfg.ResendEvery, 5*time.Second)
	cfg.GrantWait = cmp.Or(cfg.GrantWait, 10*time.Second)
	cfg.StopGrace = cmp.Or(cfg.StopGrace, 10*time.Second)
	d := &Dispatcher{
		cfg: cfg, lanes: newTargetQueue(), ready: make(chan struct{}),
		attached: make(chan struct{}), detached: make(chan struct{}),
		jobs: map[string]*job{}, unacked: map[string]*unacked{}, parked: map[string]*fleetv1.Command{},
	}
	d.asks.Serve = d.sendAsks
	close(d.detached)
	return d
}

// Run takes over the commands of the store and works until ctx ends, when it returns nil. It returns an error that the
// agent must not live on with.
func (d *Dispatcher) Run(ctx context.Context) error {
	group, ctx := task.New(ctx)
	d.group = group
	group.Go("recover", func(ctx context.Context) error {
		if err := d.recover(ctx); err != nil {
			return err
		}
		close(d.ready)
		return nil
	})
	group.Go("upkeep", d.upkeep)
	<-ctx.Done()
	return group.Wait()
}

// Ready is closed when the dispatcher has taken over what the store holds and can handle messages.
func (d *Dispatcher) Ready() <-chan struct{} { return d.ready }

// Attach connects the dispatcher to a session. All results that are not settled are sent through it.
func (d *Dispatcher) Attach(link Link, w *fleetv1.Welcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.link = link
	d.keys = nil
	for _, k := range w.GetGrantKeys() {
		d.keys = append(d.keys, ed25519.PublicKey(k))
	}
	if w.GetControllerTime() != nil {
		d.controllerTime, d.controllerAt = w.GetControllerTime().AsTime(), d.cfg.Boottime()
	}
	close(d.attached)
	d.detached = make(chan struct{})
	for _, u := range d.unacked {
		u.quiet = false
		link.Send(resultMessage(u.result))
	}
}

// Detach takes the session away.
func (d *Dispatcher) Detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link == nil {
		return
	}
	d.link = nil
	d.attached = make(chan struct{})
	close(d.detached)
}

// Handle takes messages from the controller, in their order. What commands, and acknowledgements of results, that stand
// together make durable is made so together. An error is fatal.
func (d *Dispatcher) Handle(ctx context.Context, list ...*fleetv1.ControllerMessage) error {
	for len(list) > 0 {
		n := 1
		var err error
		switch m := list[0].GetMessage().(type) {
		case *fleetv1.ControllerMessage_Command:
			var commands []*fleetv1.Command
			for n = 0; n < len(list) && list[n].GetCommand() != nil; n++ {
				commands = append(commands, list[n].GetCommand())
			}
			err = d.receive(ctx, commands...)
		case *fleetv1.ControllerMessage_ResultAck:
			var acks []*fleetv1.ResultAck
			for n = 0; n < len(list) && list[n].GetResultAck() != nil; n++ {
				acks = append(acks, list[n].GetResultAck())
			}
			err = together(acks, func(a *fleetv1.ResultAck) error { return d.resultAck(ctx, a) })
		case *fleetv1.ControllerMessage_Grant:
			d.answer(m.Grant.GetCommandId(), grantAnswer{grant: m.Grant})
		case *fleetv1.ControllerMessage_GrantRefused:
			d.answer(m.GrantRefused.GetCommandId(), grantAnswer{refused: m.GrantRefused})
		case *fleetv1.ControllerMessage_Cancel:
			d.cancel(m.Cancel.GetCommandId())
		}
		if err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// together does the same for all at once, and waits for all.
func together[T any](list []T, do func(T) error) error {
	if len(list) == 1 {
		return do(list[0])
	}
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, one := range list {
		all.Go(func() {
			errs[i] = task.Run(context.Background(), "handle together", func(context.Context) error { return do(one) })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// markRepeated hands the command over once more.
func (d *Dispatcher) markRepeated(j *job) {
	again := &fleetv1.Command{CommandId: j.id, Spec: j.stored.Spec, Digest: j.stored.Digest}
	d.group.Go("repeat "+j.id, func(ctx context.Context) error { return d.receive(ctx, again) })
}

func (d *Dispatcher) answer(id string, a grantAnswer) {
	if j := d.job(id); j != nil {
		select {
		case j.answers <- a:
		default: // a flood of answers: the ask is repeated
		}
	}
}

// cancel of a command that is not known here is not answered: this memory may be younger than the command.
func (d *Dispatcher) cancel(id string) {
	j := d.job(id)
	if j == nil {
		d.cfg.Log.Info("cancel of a command that is not open here", "command_id", id)
		return
	}
	j.cancel()
}

func (d *Dispatcher) job(id string) *job {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.jobs[id]
}

func (d *Dispatcher) send(m *fleetv1.AgentMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link != nil {
		d.link.Send(m)
	}
}

// linkState returns what waits for a change of the session need.
func (d *Dispatcher) linkState() (attached, detached <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attached, d.detached
}

func (d *Dispatcher) grantKeys() []ed25519.PublicKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys
}

// controllerNow is the controller's time, counted on from the last Welcome by the boot-time clock, which cannot be set.
// Before the first Welcome it is the last time in the memory: that time has passed, and the machine's own clock proves
// no more.
func (d *Dispatcher) controllerNow(ctx context.Context) (time.Time, error) {
	d.mu.Lock()
	at, since := d.controllerTime, d.controllerAt
	d.mu.Unlock()
	if !at.IsZero() {
		return at.Add(d.cfg.Boottime() - since), nil
	}
	meta, err := d.cfg.Store.Meta(ctx)
	return meta.ControllerTime, err
}

// heardTime reports whether a controller has told the time since this process began.
func (d *Dispatcher) heardTime() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.controllerTime.IsZero()
}
