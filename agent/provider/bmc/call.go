package bmc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// call runs fn with a session at the BMC of t, alone there, if the budget allows. Its error is one of package
// failure, a refusal of package host, or the end of ctx.
func (p *Provider) call(ctx context.Context, t provider.Target, fn func(context.Context, driver) error) error {
	return p.callWith(ctx, t, nil, fn)
}

// callWith is call with credentials that are not asked for. The session ends with it, and they are forgotten.
func (p *Provider) callWith(
	ctx context.Context, t provider.Target, lent *Credentials, fn func(context.Context, driver) error,
) error {
	e, err := ParseEndpoint(t.BMCEndpoint)
	if err != nil {
		return err
	}
	l := p.connOf(e.Key())
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.release()
	defer p.seen(l)
	if lent != nil {
		l.lend(*lent, t.CredentialsRef)
		defer l.forget(ctx)
	}
	return p.use(ctx, l, e, t, fn)
}

// lend has the next session opened with credentials that are not asked for.
func (l *conn) lend(creds Credentials, ref string) {
	l.known, l.knownBy, l.have, l.lent = creds, ref, true, true
}

func (l *conn) forget(ctx context.Context) {
	l.close(ctx)
	l.known, l.have, l.lent = Credentials{}, false, false
}

// use logs in to the BMC and runs fn with the session. The caller has taken the connection.
func (p *Provider) use(
	ctx context.Context, l *conn, e Endpoint, t provider.Target, fn func(context.Context, driver) error,
) error {
	creds, id, err := p.admit(ctx, l, e, t)
	if err != nil {
		return err
	}
	err = p.attempt(ctx, l, e, t, creds, id, fn)
	if err := p.settle(ctx, l, e, id, err); err != nil {
		return err
	}
	return p.explain(ctx, l, secondTryOf(l, id, err, p.cfg.Clock.Now()))
}

// secondTryOf turns the refusal of credentials that are tried once more into an error that waits for that.
func secondTryOf(l *conn, id string, err error, now time.Time) error {
	second := l.record.Budget.SecondTry(id)
	if !errors.Is(err, provider.ErrCredentials) || second.IsZero() {
		return err
	}
	return &startingError{key: l.key, at: second, after: second.Sub(now)}
}

// startingError reports a BMC that has refused credentials that it accepted before, as some do while they start.
type startingError struct {
	key   string
	at    time.Time
	after time.Duration
}

func (e *startingError) Error() string {
	return fmt.Sprintf("BMC %s has refused credentials that it accepted before; it may be starting, and is "+
		"asked once more at %s", e.key, e.at.UTC().Format(time.RFC3339))
}

// admit asks the budget, and gets the credentials that it is about. Nothing is sent to an endpoint that they are not
// for.
func (p *Provider) admit(
	ctx context.Context, l *conn, e Endpoint, t provider.Target,
) (creds Credentials, id string, err error) {
	if err := l.load(ctx, p.cfg.Memory, p.pin(l.key), p.unparkedAt(l.key)); err != nil {
		return Credentials{}, "", err
	}
	if creds, err = p.credentials(ctx, l, t); err != nil {
		return Credentials{}, "", withoutCredentials(ctx, l, err)
	}
	if mayGoTo(creds, e, t.CredentialsRef) != nil && t.CredentialsVersion == 0 {
		l.have = false // an admin may have allowed it since
		if creds, err = p.credentials(ctx, l, t); err != nil {
			return Credentials{}, "", withoutCredentials(ctx, l, err)
		}
	}
	if err := mayGoTo(creds, e, t.CredentialsRef); err != nil {
		l.close(ctx)
		return Credentials{}, "", err
	}
	if l.record.Offered != "" && !creds.UnverifiedTLS {
		if err := p.recheck(ctx, l, e); err != nil {
			return Credentials{}, "", p.explain(ctx, l, err)
		}
	}
	id = credentialsID(t.CredentialsRef, creds.Version) + l.suffix
	leave, until := l.record.Budget.Ask(p.cfg.Clock.Now(), id)
	return creds, id, refusal(l, leave, until, p.cfg.Clock.Now())
}

// withoutCredentials: their source may be away for a while.
func withoutCredentials(ctx context.Context, l *conn, err error) error {
	var known *failure.Error
	if ctx.Err() != nil || errors.As(err, &known) {
		return fmt.Errorf("get credentials of BMC %s: %w", l.key, err)
	}
	if e := failure.From(err); e.Kind == failure.KindPrecondition {
		return e // what the controller refuses stays its word: they may not go there
	}
	return failure.Unavailable("EXECUTION_FAILED", "the credentials of BMC %s could not be had", l.key).Wrap(err)
}

func credentialsID(ref string, version int64) string { return fmt.Sprintf("%s@%d", ref, version) }

// credentials are asked for again when they may have changed.
func (p *Provider) credentials(ctx context.Context, l *conn, t provider.Target) (Credentials, error) {
	if l.have && l.knownBy == t.CredentialsRef {
		if t.CredentialsVersion == l.known.Version {
			return l.known, nil
		}
		leave, _ := l.record.Budget.Ask(p.cfg.Clock.Now(), credentialsID(t.CredentialsRef, l.known.Version))
		if t.CredentialsVersion == 0 && leave != ParkedLeave && leave != LockoutLeave {
			return l.known, nil
		}
	}
	creds, err := p.cfg.Credentials(ctx, t)
	if err != nil {
		return Credentials{}, err
	}
	l.known, l.knownBy, l.have = creds, t.CredentialsRef, true
	return creds, nil
}

func refusal(l *conn, leave Permission, until, now time.Time) error {
	switch leave {
	case ParkedLeave:
		if !until.IsZero() {
			return failure.Precondition("BMC_AUTH_FAILED",
				"BMC %s has refused these credentials and is asked once more at %s, or when they change",
				l.key, until.UTC().Format(time.RFC3339))
		}
		return failure.Precondition("BMC_AUTH_FAILED",
			"BMC %s has refused these credentials and is not asked again until they change", l.key)
	case LockoutLeave:
		return failure.Precondition("BMC_AUTH_FAILED",
			"BMC %s has refused %d log-ins, or left them unanswered, and is left alone until %s",
			l.key, wrongMost, until.UTC().Format(time.RFC3339))
	case BackoffLeave:
		return failure.Unavailable("BMC_UNREACHABLE",
			"BMC %s does not answer, or has asked for a pause; it is asked again at %s", l.key,
			until.UTC().Format(time.RFC3339)).
			WithRetry(until.Sub(now))
	case Go:
	}
	return nil
}

// attempt opens a session where there is none that fits, and uses it.
func (p *Provider) attempt(
	ctx context.Context, l *conn, e Endpoint, t provider.Target, creds Credentials, id string,
	fn func(context.Context, driver) error,
) error {
	return task.Run(ctx, "BMC "+l.key, func(ctx context.Context) error { // a panic of a parser stays an error
		// Behind one BMC there may be several machines, and a session knows one of them.
		by := id + " " + t.MachineID + " " + e.System
		if !l.fits(e, by, p.cfg.Clock.Now()) {
			l.close(ctx)
			conn, err := p.openWithin(ctx, l, e, t, creds)
			if err != nil {
				return err
			}
			l.conn, l.connBy = conn, by
		}
		l.spokeIn = Protocol(l.conn.Protocol())
		defer func() { l.usedAt = p.cfg.Clock.Now() }()
		ctx, cancel := context.WithTimeout(ctx, p.patience(l))
		defer cancel()
		return fn(ctx, l.conn)
	})
}

func (p *Provider) openWithin(
	ctx context.Context, l *conn, e Endpoint, t provider.Target, creds Credentials,
) (driver, error) {
	ctx, cancel := context.WithTimeout(ctx, p.patience(l))
	defer cancel()
	return p.open(ctx, l, e, t, creds)
}

// patience is the time for one exchange, and for a log-in: what a BMC needs that has shown how slow it is.
func (p *Provider) patience(l *conn) time.Duration {
	return max(p.cfg.Timeout, min(8*l.slowest, 3*p.cfg.Timeout))
}

// settle keeps what an attempt has taught. Its own error is that of the memory, without which nothing must go on: it
// would forget who has been refused.
func (p *Provider) settle(ctx context.Context, l *conn, e Endpoint, id string, err error) error {
	before := l.record
	now := p.cfg.Clock.Now()
	var panicked *task.PanicError
	switch {
	case errors.Is(err, provider.ErrCredentials):
		l.drop()
		outcome := Refused
		switch {
		case errors.Is(err, provider.ErrUnauthorized) && l.record.Taken == id && !l.account && !l.lent:
			outcome = Doubtful
		case errors.Is(err, provider.ErrUnauthorized):
			outcome = Unauthorized
		}
		l.record.Budget = l.record.Budget.After(now, id, outcome)
		l.record.Taken = ""
		if second := l.record.Budget.SecondTry(id); !second.IsZero() {
			p.cfg.Log.WarnContext(
				ctx,
				"BMC refused credentials that it accepted last; it may be starting, and is asked once more",
				"bmc",
				l.key,
				"credentials",
				id,
				"at",
				second,
			)
			break
		}
		p.cfg.Log.WarnContext(ctx, "BMC refused the credentials and is parked", "bmc", l.key, "credentials", id)
	case errors.Is(err, provider.ErrCertificate):
		l.drop()
		p.cfg.Log.WarnContext(ctx, "BMC shows a certificate that is not trusted, and is parked", "bmc", l.key)
	case errors.Is(err, provider.ErrUnanswered) && l.record.Taken != id:
		l.drop()
		l.record.Budget = l.record.Budget.After(now, id, Unanswered)
	case ctx.Err() != nil:
		l.drop() // the caller's context ended in the middle
	case errors.Is(err, provider.ErrSilent), errors.Is(err, provider.ErrProtocol):
		l.drop()
		l.record.Budget = l.record.Budget.After(now, id, Silent)
	case errors.As(err, &panicked):
		l.drop()
		p.cfg.Log.ErrorContext(ctx, "BMC adapter panicked", "bmc", l.key, "error", err)
	default:
		if l.conn != nil {
			l.record.Taken = id
		}
		l.record.Budget = l.record.Budget.After(now, id, Answered)
		if after := pauseOf(err); after > 0 {
			l.record.Budget = l.record.Budget.Pause(now, after)
		}
	}
	if e.Protocol == Unknown && (errors.Is(err, provider.ErrProtocol) || l.record.Budget.stale()) {
		l.record.Protocol = Unknown
	}
	return p.save(l, before)
}

// pauseOf is how long the BMC asks not to be asked again (Retry-After); 0 where it did not.
func pauseOf(err error) time.Duration {
	var busy interface{ RetryAfter() time.Duration }
	if errors.As(err, &busy) {
		return busy.RetryAfter()
	}
	return 0
}

func (p *Provider) save(l *conn, before Record) error {
	a, b := before, l.record
	if a.Protocol == b.Protocol && a.Taken == b.Taken && a.Pin == b.Pin && a.Offered == b.Offered &&
		len(a.Budget.Parked) == len(b.Budget.Parked) && len(a.Budget.Wrong) == len(b.Budget.Wrong) &&
		maps.Equal(a.Budget.Again, b.Budget.Again) {
		return nil
	}
	return p.cfg.Memory.Save(l.key, l.record)
}

// explain turns an adapter's error into a typed one with its meaning for a command.
func (p *Provider) explain(ctx context.Context, l *conn, err error) error {
	var refused *effect.Refusal
	var e *failure.Error
	var starting *startingError
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case errors.As(err, &starting):
		e = failure.Unavailable("BMC_UNREACHABLE", "%v", err).WithRetry(starting.after)
	case errors.Is(err, provider.ErrCredentials):
		e = failure.Precondition("BMC_AUTH_FAILED", "BMC %s refuses the credentials", l.key)
	case errors.Is(err, provider.ErrCertificate) && l.record.Offered != "":
		e = failure.Precondition("BMC_CERTIFICATE_CHANGED",
			"BMC %s shows another certificate than before (SHA-256 %s); no password was sent. Where that is right: ingot bmc "+
				"trust",
			l.key, l.record.Offered)
	case errors.Is(err, provider.ErrCertificate):
		e = failure.Precondition("BMC_AUTH_FAILED",
			"BMC %s shows a certificate that is not the known one, or not trusted; no password was sent", l.key)
	case ctx.Err() != nil:
		return fmt.Errorf("ask BMC %s: %w", l.key, context.Cause(ctx))
	case errors.Is(err, provider.ErrOldTLS):
		e = failure.Unavailable("BMC_UNREACHABLE",
			"BMC %s has no TLS 1.2; older TLS is not spoken. Update its firmware, or name it ipmi://%s", l.key, l.key)
	case errors.Is(err, provider.ErrRSAOnly):
		e = failure.Unavailable("BMC_UNREACHABLE", "BMC %s offers TLS with RSA key exchange alone, without forward "+
			"secrecy, which is not spoken. Update its firmware, or name it ipmi://%s", l.key, l.key)
	case errors.Is(err, provider.ErrSilent):
		e = failure.Unavailable("BMC_UNREACHABLE", "BMC %s does not answer", l.key)
	case errors.Is(err, provider.ErrProtocol):
		e = failure.Unavailable("BMC_UNREACHABLE", "at BMC %s nothing answers that could be understood", l.key)
	default:
		e = failure.Unavailable("EXECUTION_FAILED", "BMC %s: %v", l.key, err)
		if after := pauseOf(err); after > 0 {
			e = e.WithRetry(min(after, backoffMost))
		}
	}
	if l.spokeIn != Unknown {
		e = e.WithMeta(EvidenceProtocol, string(l.spokeIn))
	}
	return e.Wrap(err)
}
