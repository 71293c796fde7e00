package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// ErrSuperseded is returned when a newer process uses this identity. This one must not come back by itself.
var ErrSuperseded = errors.New("a newer process uses this agent's identity")

var (
	errDrained = errors.New("the controller asked to reconnect")
	errRotated = errors.New("the certificate was rotated")
	errMoved   = errors.New("the machine's network was changed")
)

// Config is what a Runner needs.
type Config struct {
	Store      Store
	Dir        state.Dir
	Dispatcher *dispatch.Dispatcher
	// Addresses returns host:port of the fleet listeners.
	Addresses func() ([]string, error)
	Dial      transport.Dialer
	// Hello describes the agent; the runner fills in what the store knows.
	Hello func(ctx context.Context) (*fleetv1.Hello, error)
	// Heartbeat describes the process; the runner fills in the rest.
	Heartbeat func() *fleetv1.Heartbeat
	// Reenroll replaces an expired certificate.
	Reenroll func(ctx context.Context) error
	// OneCertificate keeps the first certificate to its end. An installer's is for one operation and is never renewed.
	OneCertificate bool
	// Welcomed is called after every Welcome; it may be nil.
	Welcomed func(*fleetv1.Welcome)
	// Discover looks for BMCs, with a context of the session, and sends what it has found; nil where the agent does not.
	Discover func(ctx context.Context, d *fleetv1.DiscoverBMCs, send func(*fleetv1.BMCsDiscovered))
	// Ended is called when a session that was welcomed has ended; it may be nil.
	Ended func()
	// BuildTime is a moment known to have passed.
	BuildTime time.Time
	Clock     clock.Clock
	Log       *slog.Logger
}

// Runner keeps a session open.
type Runner struct {
	cfg Config
	// heartbeat is the interval of the last Welcome, in nanoseconds.
	heartbeat atomic.Int64
	connected atomic.Bool
	// current is the session that is open; see Call.
	current atomic.Pointer[session]
	tryNext bool
	turn    int
	// held is a connection whose controller has said when to try again.
	held *line
	// expires is when the certificate does that was used last.
	expires time.Time
}

// line is a connection, and whom it is made as.
type line struct {
	conn   *transport.Conn
	creds  state.Credentials
	isNext bool
	path   *reached
}

// close ends the connection.
func (l *line) close() error {
	l.path.drop()
	return l.conn.Close()
}

// New makes a Runner.
func New(cfg Config) *Runner {
	// A fleet that starts at one moment does not begin with one controller.
	return &Runner{cfg: cfg, tryNext: true, turn: rand.IntN(1 << 16)}
}

// Connected reports whether a session is open now.
func (r *Runner) Connected() bool { return r.connected.Load() }

// Run returns nil when ctx ends, and otherwise only with ErrSuperseded, state.ErrRolledBack or an error of
// the agent itself.
func (r *Runner) Run(ctx context.Context) error {
	select {
	case <-r.cfg.Dispatcher.Ready():
	case <-ctx.Done():
		return nil
	}
	defer r.closeLine()
	for attempt := 1; ; attempt++ {
		welcomed, err := r.attempt(ctx)
		if ctx.Err() != nil && !isFinal(err) {
			return nil
		}
		if isFinal(err) {
			return err
		}
		if welcomed {
			attempt = 1
		}
		if err := r.wait(ctx, attempt, err); err != nil {
			return nil
		}
	}
}

// fatal marks an error of the agent itself, not of the connection.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

func isFinal(err error) bool {
	var f fatal
	return errors.Is(err, ErrSuperseded) || errors.Is(err, state.ErrRolledBack) ||
		errors.As(err, &f)
}

func (r *Runner) wait(ctx context.Context, attempt int, err error) error {
	d := delay(attempt, err)
	if err != nil && !meant(err) {
		r.cfg.Log.Warn("no session", "attempt", attempt, "retry_in", d.Round(time.Millisecond).String(), "error", err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.cfg.Clock.After(d):
		return nil
	}
}

// meant reports whether the session was ended to begin another one.
func meant(err error) bool {
	return errors.Is(err, errDrained) || errors.Is(err, errRotated) || errors.Is(err, errMoved)
}

// delay honours the controller's RetryInfo, with up to a quarter on top.
func delay(attempt int, err error) time.Duration {
	if err == nil || meant(err) {
		return transport.Jitter(transport.MinBackoff)
	}
	if f := failure.From(err); f.RetryAfter > 0 {
		return f.RetryAfter + transport.Jitter(f.RetryAfter/4)
	}
	return transport.Backoff(attempt)
}

// Now is the latest of the clock and every moment that is known to have passed.
func (r *Runner) now(ctx context.Context) (time.Time, error) {
	meta, err := r.cfg.Store.Meta(ctx)
	if err != nil {
		return time.Time{}, fatal{err}
	}
	return pki.EffectiveNow(r.cfg.Clock.Now(), r.cfg.BuildTime, meta.ControllerTime), nil
}

// attempt opens one session and stays in it to its end.
func (r *Runner) attempt(ctx context.Context) (welcomed bool, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return false, err
	}
	l, err := r.line(ctx, now)
	if err != nil || l == nil {
		return false, err
	}
	s := &session{r: r, conn: l.conn, creds: l.creds, isNext: l.isNext, link: newOutbox(), moved: make(chan struct{}, 1),
		renew: make(chan time.Duration, 1)}
	err = s.run(ctx)
	if paced(err) {
		// To connect again would cost the controller more than to answer has.
		r.held = l
		return false, err
	}
	if s.welcome == nil && l.conn.AuthorityUnknown() {
		r.cfg.Log.Warn("the CA of this agent's certificate has been withdrawn; enrolling again")
		err = r.cfg.Reenroll(ctx)
	}
	if cerr := l.close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	return s.welcome != nil, err
}

// paced reports whether the controller takes agents one after the other, and has told this one when to come again.
func paced(err error) bool {
	return err != nil && failure.ReasonOf(err) == baremetalv1.Reason_ADMISSION_PACED.String()
}

// line makes a connection, or returns the one that is held. With an expired certificate it enrols again instead, and
// returns nil.
func (r *Runner) line(ctx context.Context, now time.Time) (*line, error) {
	if l := r.held; l != nil {
		r.held = nil
		return l, nil
	}
	address, err := r.address()
	if err != nil {
		return nil, err
	}
	path, err := r.predial(ctx, address, now)
	if err != nil {
		return nil, fmt.Errorf("connect to controller: %w", err)
	}
	l, err := r.prepare(ctx, address, path, now)
	if l == nil {
		path.drop()
	}
	return l, err
}

// prepare gets a connection ready to be used.
func (r *Runner) prepare(ctx context.Context, address string, path *reached, now time.Time) (*line, error) {
	creds, isNext, err := r.credentials(now)
	if err != nil {
		return nil, fatal{err}
	}
	r.expires = creds.Leaf().NotAfter
	if errors.Is(pki.CheckTimes(creds.Leaf(), now), pki.ErrExpired) {
		r.cfg.Log.Warn("certificate has expired; enrolling again", "expired_at", creds.Leaf().NotAfter)
		return nil, r.cfg.Reenroll(ctx)
	}
	conn, err := r.dial(address, creds, now, path.dialer(r.cfg.Dial))
	if err != nil {
		return nil, err
	}
	return &line{conn, creds, isNext, path}, nil
}

// closeLine closes the connection that is held.
func (r *Runner) closeLine() {
	if r.held != nil {
		_ = r.held.close() // nothing was on it
		r.held = nil
	}
}

// credentials takes the next ones, if there are any, in turns with those in use.
func (r *Runner) credentials(now time.Time) (c state.Credentials, isNext bool, err error) {
	next, found, err := r.cfg.Dir.Next()
	if err != nil {
		return c, false, err
	}
	current, err := r.cfg.Dir.Credentials()
	if err != nil {
		return c, false, err
	}
	expired := pki.CheckTimes(current.Leaf(), now) != nil
	if found && (r.tryNext || expired) {
		r.tryNext = false
		return next, true, nil
	}
	r.tryNext = true
	return current, false, nil
}

func (r *Runner) address() (string, error) {
	list, err := r.cfg.Addresses()
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", errors.New("no controller address is known")
	}
	r.turn++
	return list[(r.turn-1)%len(list)], nil
}

func (r *Runner) dial(
	address string, creds state.Credentials, now time.Time, dial transport.Dialer,
) (*transport.Conn, error) {
	roots, err := r.cfg.Dir.Trust()
	if err != nil {
		return nil, fatal{err}
	}
	cfg, err := transport.Mutual(creds.TLS(), roots, address, func() time.Time {
		return pki.EffectiveNow(now, r.cfg.Clock.Now())
	})
	if err != nil {
		return nil, err
	}
	patience := transport.Patience
	if list, err := r.cfg.Addresses(); err == nil && len(list) == 1 {
		patience = transport.LastPatience
	}
	conn, err := transport.Dial(address, cfg, dial, patience)
	if err != nil {
		return nil, fmt.Errorf("connect to controller: %w", err)
	}
	return conn, nil
}
