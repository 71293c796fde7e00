// Package ratelimit limits connections and calls on the client listener: it refuses a call with a time after which to
// try again, or makes it wait for its turn. It comes after the authentication, which identifies the caller.
//
// Its state is one fairqueue.Ledger behind a mutex and ends with the process: a client that was slowed down starts with
// full rates on another controller.
package ratelimit

import (
	"context"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/limit/fairqueue"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// The reasons of refusals.
const (
	ReasonRateLimited = "RATE_LIMITED"
	ReasonStreams     = "TOO_MANY_STREAMS"
	ReasonOverloaded  = "CONTROLLER_OVERLOADED"
)

// Observer is called for each event, for metrics.
type Observer interface {
	// Refused: why is one of admission's, or "wait" for a call that waited as long as it may.
	Refused(client, why string)
	// Waited is how long a call waited for its place, and how many run and wait after it got it.
	Waited(took time.Duration, running, waiting int)
}

// Config is what a door works with. Limits are required.
type Config struct {
	Limits fairqueue.Limits
	// MaxWait is how long a call waits for its turn.
	MaxWait time.Duration
	// Clock is the real one when nil.
	Clock clock.Clock
	// Observer may be nil.
	Observer Observer
}

type noObserver struct{}

func (noObserver) Refused(string, string)         {}
func (noObserver) Waited(time.Duration, int, int) {}

// Limiter lets calls in. It is safe for concurrent use.
type Limiter struct {
	cfg  Config
	need map[string]auth.Rule

	mu   sync.Mutex
	book *fairqueue.Ledger
}

// New makes a door.
func New(c Config) *Limiter {
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return &Limiter{cfg: c, need: auth.Table(), book: fairqueue.New(c.Limits)}
}

// kind is what a method does: who needs no more than scope read changes nothing.
func (d *Limiter) kind(method string) fairqueue.Kind {
	switch {
	case d.need[method].Need != auth.NeedRead && d.need[method].Need != auth.NeedCaller:
		return fairqueue.Write
	case strings.HasPrefix(path.Base(method), "List"):
		return fairqueue.List
	default:
		return fairqueue.Read
	}
}

// long are the methods without a stream that may take any time, because they fetch something from elsewhere. They count
// as streams, so that they take no place of other calls.
var long = map[string]bool{"/baremetal.v1.AdminService/AddImage": true}

// Unary lets unary calls in. Calls without a caller, such as health checks, pass.
func (d *Limiter) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		who, ok := call.Caller(ctx)
		if !ok {
			return next(ctx, req)
		}
		enter := d.enter
		if long[info.FullMethod] {
			enter = func(_ context.Context, client string, k fairqueue.Kind, _ int) (func(), error) {
				return d.open(client, k)
			}
		}
		leave, err := enter(ctx, who.Client(), d.kind(info.FullMethod), sizeOf(req))
		if err != nil {
			return nil, err
		}
		defer leave()
		return next(ctx, req)
	}
}

// Stream lets streams in.
func (d *Limiter) Stream() grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		who, ok := call.Caller(s.Context())
		if !ok {
			return next(srv, s)
		}
		leave, err := d.open(who.Client(), d.kind(info.FullMethod))
		if err != nil {
			return err
		}
		defer leave()
		return next(srv, s)
	}
}

func sizeOf(req any) int {
	if m, ok := req.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}

// enter waits for a place.
func (d *Limiter) enter(ctx context.Context, client string, k fairqueue.Kind, size int) (leave func(), err error) {
	began := d.cfg.Clock.Now()
	d.mu.Lock()
	t, no := d.book.Enter(client, k, size, began)
	d.mu.Unlock()
	if no != nil {
		return nil, d.refuse(client, no)
	}
	leave = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.book.Leave(t)
	}
	select {
	case <-t.Ready():
	default:
		if err := d.wait(ctx, client, t); err != nil {
			leave()
			return nil, err
		}
	}
	d.mu.Lock()
	running, waiting := d.book.Running(), d.book.Waiting()
	d.mu.Unlock()
	d.cfg.Observer.Waited(d.cfg.Clock.Now().Sub(began), running, waiting)
	return leave, nil
}

func (d *Limiter) wait(ctx context.Context, client string, t *fairqueue.Ticket) error {
	select {
	case <-t.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.cfg.Clock.After(d.cfg.MaxWait):
		return d.refuse(client, &fairqueue.Refusal{Why: "wait"})
	}
}

func (d *Limiter) open(client string, k fairqueue.Kind) (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if no := d.book.OpenStream(client, k, d.cfg.Clock.Now()); no != nil {
		return nil, d.refuse(client, no)
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.book.CloseStream(client)
	}, nil
}

// refuse returns the error, by which a client knows whether it is the cause itself. The time to try again is spread,
// since calls that are refused together must not come back together.
func (d *Limiter) refuse(client string, no *fairqueue.Refusal) error {
	d.cfg.Observer.Refused(client, string(no.Why))
	var err *failure.Error
	after := max(no.After, 100*time.Millisecond)
	switch no.Why {
	case fairqueue.ReadRate, fairqueue.WriteRate:
		r, what := d.cfg.Limits.Read, "reads"
		if no.Why == fairqueue.WriteRate {
			r, what = d.cfg.Limits.Write, "writes"
		}
		err = failure.Exhausted(ReasonRateLimited, "client %s is allowed %d %s a second, %d in a burst", client, r.PerSecond,
			what, r.Burst)
	case fairqueue.Streams:
		err, after = failure.Exhausted(ReasonStreams, "client %s has %d streams open; close some", client,
			d.cfg.Limits.ClientStreams), time.Second
	case fairqueue.AllStreams:
		err, after = failure.Exhausted(ReasonStreams, "clients have %d streams open at this controller",
			d.cfg.Limits.Streams), time.Second
	default:
		err, after = failure.Exhausted(ReasonOverloaded,
			"more calls are under way than this controller does at a time; this one would wait too long"), time.Second
	}
	return err.WithRetry(after+rand.N(after/2)).WithMeta("why", string(no.Why))
}
