package bmc

import (
	"context"
	"errors"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// BeforePassword is passed when everything is ready to tell the BMC its new password, and nothing was sent.
var BeforePassword = failpoint.Register("bmc.before-password")

// AfterPassword is passed when the BMC has answered, and before the answer is recorded.
var AfterPassword = failpoint.Register("bmc.after-password")

// laterWait is how long a BMC gets that has taken the order to carry it out later (202).
const laterWait = 3 * time.Second

// PasswordChange is the change of the password of a BMC's account. Both credentials have the same user name.
type PasswordChange struct {
	Current, New Credentials
	// Tried: the BMC may have been given the new one before.
	Tried bool
	// Begin is called before the BMC is given the new one; its error ends the change with nothing done.
	Begin func(ctx context.Context) error
}

// PasswordProof is what shows that the BMC takes a password.
type PasswordProof struct {
	// At is when it has taken it, in Protocol.
	At       time.Time
	Protocol Protocol
}

// ChangePassword changes the password and proves it by a log-in with the new one. After a change with an open end it
// tries the new password first, then the old one. Each is tried at most once between two changes, within the budget of
// the BMC. Reason BMC_PASSWORD_REFUSED means that the BMC was seen to accept the old one still.
func (p *Provider) ChangePassword(
	ctx context.Context, t provider.Target, c PasswordChange,
) (proof PasswordProof, err error) {
	return p.atAccount(ctx, t, c, func(w *passwordWork) error {
		err := w.run(ctx)
		if w.e.Protocol == Unknown && w.l.spokeIn == Redfish && errors.Is(err, effect.ErrUnsupported) {
			w.e.Protocol, w.l.suffix = IPMI, " ipmi"
			if other := w.run(ctx); !errors.Is(other, provider.ErrSilent) {
				return other
			}
		}
		return err
	})
}

// TryPassword logs in once, with the new password, and changes nothing.
func (p *Provider) TryPassword(ctx context.Context, t provider.Target, c PasswordChange) (PasswordProof, error) {
	return p.atAccount(ctx, t, c, func(w *passwordWork) error { return w.proved(w.prove(ctx, c.New)) })
}

// atAccount runs fn with the turn at the BMC. Sessions end with it.
func (p *Provider) atAccount(
	ctx context.Context, t provider.Target, c PasswordChange, fn func(*passwordWork) error,
) (proof PasswordProof, err error) {
	e, err := ParseEndpoint(t.BMCEndpoint)
	if err != nil {
		return proof, err
	}
	l := p.connOf(e.Key())
	if err := l.take(ctx); err != nil {
		return proof, err
	}
	defer l.release()
	defer p.seen(l)
	l.close(ctx)
	l.account = true
	defer func() {
		l.forget(ctx)
		l.account, l.suffix = false, ""
	}()
	w := &passwordWork{provider: p, l: l, e: e, t: t, c: c}
	err = fn(w)
	return PasswordProof{At: w.at, Protocol: l.spokeIn}, err
}

// passwordWork is one change of a password. Its caller has taken the connection.
type passwordWork struct {
	provider *Provider
	l        *conn
	e        Endpoint
	t        provider.Target
	c        PasswordChange
	at       time.Time
}

func (w *passwordWork) run(ctx context.Context) error {
	if w.c.Tried {
		if err := w.prove(ctx, w.c.New); !refuses(err) {
			return w.proved(err)
		}
	}
	asked, later := false, false
	err := w.with(ctx, w.c.Current, func(ctx context.Context, d driver) (err error) {
		if err := errors.Join(w.c.Begin(ctx), BeforePassword.HitCtx(ctx)); err != nil {
			return err
		}
		asked = true
		later, err = d.SetPassword(ctx, w.c.New.Username, w.c.New.Password)
		return err
	})
	switch {
	case !asked && w.c.Tried && refuses(err):
		return w.neither()
	case !asked, errors.Is(err, effect.ErrUnsupported):
		return err
	}
	if err := AfterPassword.HitCtx(ctx); err != nil {
		return err
	}
	if errors.Is(err, provider.ErrUnchanged) {
		return w.refused(ctx, err)
	}
	wait := w.l.record.Budget.NotBefore.Sub(w.provider.cfg.Clock.Now()) // after a silence
	if later {
		wait = laterWait
	}
	if err := w.sleep(ctx, wait); err != nil {
		return err
	}
	return w.settled(ctx, err)
}

// refused proves that the BMC, which has said no, takes the old password still.
func (w *passwordWork) refused(ctx context.Context, cause error) error {
	switch err := w.prove(ctx, w.c.Current); {
	case err == nil:
		return failure.Precondition("BMC_PASSWORD_REFUSED",
			"%s; the old password was seen to be in force", failure.From(cause).Message).Wrap(cause)
	case refuses(err):
		return w.settled(ctx, cause) // it has said no, and done it
	default:
		return err
	}
}

// settled finds out which password the BMC takes after it was given the new one. cause is the error of that, if any.
func (w *passwordWork) settled(ctx context.Context, cause error) error {
	current, changed := w.id(w.c.Current), w.id(w.c.New)
	w.l.record.Budget = w.l.record.Budget.Without("", changed).Without("", changed+w.l.suffix).Without("", current)
	if err := w.prove(ctx, w.c.New); !refuses(err) {
		if err == nil {
			w.l.record.Budget = w.l.record.Budget.Without(current, changed)
			err = w.provider.cfg.Memory.Save(w.l.key, w.l.record)
		}
		return w.proved(err)
	}
	switch err := w.prove(ctx, w.c.Current); {
	case err == nil && cause != nil:
		return cause
	case err == nil:
		return failure.Unavailable("BMC_NO_EFFECT",
			"BMC %s has accepted the new password and takes the old one still", w.l.key)
	case refuses(err):
		return w.neither()
	default:
		return err
	}
}

// neither is the end of a change after which the BMC takes no password that is known.
func (w *passwordWork) neither() error {
	return failure.Precondition("BMC_AUTH_FAILED",
		"BMC %s refuses the new password and the old one; both are kept. When it is well again: ingot bmc unpark %s, then "+
			"ingot bmc rotate-password %s", w.l.key, w.t.MachineID, w.t.MachineID)
}

// proved notes the time of a proof.
func (w *passwordWork) proved(err error) error {
	if err == nil {
		w.at = w.provider.cfg.Clock.Now()
	}
	return err
}

// prove logs in.
func (w *passwordWork) prove(ctx context.Context, creds Credentials) error {
	return w.with(ctx, creds, func(context.Context, driver) error { return nil })
}

// with runs fn in a session of its own.
func (w *passwordWork) with(ctx context.Context, creds Credentials, fn func(context.Context, driver) error) error {
	w.l.close(ctx)
	w.l.lend(creds, w.t.CredentialsRef)
	t := w.t
	t.CredentialsVersion = creds.Version
	return w.provider.use(ctx, w.l, w.e, t, fn)
}

func (w *passwordWork) id(creds Credentials) string {
	return credentialsID(w.t.CredentialsRef, creds.Version)
}

func (w *passwordWork) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.provider.cfg.Clock.After(d):
		return nil
	}
}

// refuses reports whether a log-in was refused, or is not tried because the same was refused before.
func refuses(err error) bool {
	e := failure.From(err)
	return err != nil && e.Reason == "BMC_AUTH_FAILED"
}
