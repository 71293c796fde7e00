package reconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/transport"
)

// errNotThere: the change was accepted, the world does not show it, and it may still come.
var errNotThere = errors.New("read back differs")

// confirm reads back, makes new contact and has the network checked, again and again until the deadline.
func (e *Executor) confirm(ctx context.Context, job executor.Job, in intent, deadline time.Time) (p proof, err error) {
	_, diff, err := e.readBack(ctx, in.Want, in.Saved)
	if err != nil {
		return p, err
	}
	if diff != "" {
		return p, e.notThere(errors.New(diff))
	}
	began := e.cfg.Clock.Now()
	up := e.cfg.Clock.After(deadline.Sub(began))
	patience := began.Add(min(checkPatience, confirmLimit(job)/4))
	for {
		p, err = e.try(ctx, job, in, deadline)
		warned := err == nil && hasWarnings(p.checks)
		if err == nil && !(warned && e.cfg.Clock.Now().Before(patience)) || errors.Is(err, errDuplicate) {
			return p, err
		}
		job.Logf("not confirmed yet: %v", cmp.Or(err, errWarnings))
		select {
		case <-ctx.Done():
			return p, context.Cause(ctx)
		case <-up:
			return p, err
		case <-e.cfg.Clock.After(proveEvery):
		}
	}
}

// try makes new contact once and then has the network checked.
func (e *Executor) try(ctx context.Context, job executor.Job, in intent, deadline time.Time) (p proof, err error) {
	if p.from, err = e.prove(ctx, in, deadline); err != nil {
		return p, fmt.Errorf("no new contact with the controller within %s: %w", confirmLimit(job), err)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline.Sub(e.cfg.Clock.Now()))
	defer cancel()
	p.checks = e.check(ctx, in)
	if err := failedChecks(p.checks); err != nil {
		return p, err
	}
	if ctx.Err() != nil { // a check that ran out of time proves nothing
		return p, fmt.Errorf("check the network: %w", ctx.Err())
	}
	return p, nil
}

// prove makes new contact, from each address that it may have to come from until one has worked.
func (e *Executor) prove(ctx context.Context, in intent, deadline time.Time) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, min(deadline.Sub(e.cfg.Clock.Now()), proveOnce))
	defer cancel()
	var errs []error
	for _, from := range e.sources(ctx, in) {
		err := e.cfg.Prove(transport.WithSource(ctx, from))
		if err == nil {
			return from, nil
		}
		if from.IsValid() {
			err = fmt.Errorf("from %s: %w", from, err)
		}
		errs = append(errs, err)
	}
	return netip.Addr{}, errors.Join(errs...)
}

// sources are the new addresses on the ways to the controllers. A way over an interface that is none of ours proves
// itself from whatever address it has.
func (e *Executor) sources(ctx context.Context, in intent) []netip.Addr {
	var out []netip.Addr
	if in.Want.Network == nil {
		return []netip.Addr{{}}
	}
	for _, c := range e.cfg.Controllers(ctx) {
		from, err := e.cfg.Host.NetworkSource(ctx, *in.Want.Network, c.Addr())
		if err == nil && !slices.Contains(out, from) {
			out = append(out, from)
		}
	}
	if len(out) == 0 {
		return []netip.Addr{{}}
	}
	return out
}

// notThere marks a change that may still come. Where none can, the reason is the whole truth.
func (e *Executor) notThere(why error) error {
	if h, ok := e.cfg.Host.(atOnce); ok && h.ChangesAtOnce() {
		return fmt.Errorf("read back: %w", why)
	}
	return fmt.Errorf("%w: %w", errNotThere, why)
}
