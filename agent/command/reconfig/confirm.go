package reconfig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/transport"
)

// errNotThere: the change was accepted, the world does not show it, and it may still come.
var errNotThere = errors.New("read back differs")

// confirm reads back and then makes new contact, again and again until the deadline. It gives the address that the
// contact was made from, where the configuration names it.
func (e *Executor) confirm(ctx context.Context, job command.Job, in intent, deadline time.Time) (netip.Addr, error) {
	_, diff, err := e.readBack(ctx, in.Want, in.Saved)
	if err != nil {
		return netip.Addr{}, err
	}
	if diff != "" {
		return netip.Addr{}, e.notThere(errors.New(diff))
	}
	up := e.cfg.Clock.After(deadline.Sub(e.cfg.Clock.Now()))
	for {
		from, err := e.prove(ctx, in, deadline)
		if err == nil {
			return from, nil
		}
		job.Logf("not confirmed yet: %v", err)
		select {
		case <-ctx.Done():
			return from, context.Cause(ctx)
		case <-up:
			return from, fmt.Errorf("no new contact with the controller within %s: %w", confirmLimit(job), err)
		case <-e.cfg.Clock.After(proveEvery):
		}
	}
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
