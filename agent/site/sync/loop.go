package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	beforeStored  = failpoint.Register("site.before-stored")
	afterStored   = failpoint.Register("site.after-stored")
	afterApplied  = failpoint.Register("site.after-applied")
	afterReported = failpoint.Register("site.after-reported")
)

// DefaultHold is how long the controller may keep a call when there is nothing new.
const DefaultHold = 20 * time.Second

// answerWait is what a call may take beyond its hold.
const answerWait = 10 * time.Second

// Store keeps the document.
type Store interface {
	SaveSiteDocument(ctx context.Context, doc *fleetv1.SiteDocument) error
	// SiteDocument returns nil when there is none.
	SiteDocument(ctx context.Context) (*fleetv1.SiteDocument, error)
}

// Config describes a Loop.
type Config struct {
	// Call makes a call on the connection of the agent's session. Without one it waits until ctx ends.
	Call func(ctx context.Context, fn func(context.Context, fleetv1.AgentServiceClient) error) error
	// Apply makes the services serve by a document. When it returns nil they do.
	Apply   func(ctx context.Context, doc *fleetv1.SiteDocument) error
	Store   Store
	Reports *Reports
	Hold    time.Duration
	// Pause is the least time between two calls with reports.
	Pause time.Duration
	Clock clock.Clock
	Log   *slog.Logger
}

// Loop is one agent's side of the conversation.
type Loop struct {
	cfg     Config
	applied int64
}

// New makes a Loop.
func New(cfg Config) *Loop {
	if cfg.Hold == 0 {
		cfg.Hold = DefaultHold
	}
	if cfg.Pause == 0 {
		cfg.Pause = time.Second
	}
	return &Loop{cfg: cfg}
}

// Start serves the stored document. It must be called before Run.
func (l *Loop) Start(ctx context.Context) error {
	doc, err := l.cfg.Store.SiteDocument(ctx)
	if err != nil || doc == nil {
		return err
	}
	if err := l.cfg.Apply(ctx, doc); err != nil {
		l.cfg.Log.Error("stored document not served; waiting for another one", "revision", doc.GetRevision(), "error", err)
		return nil
	}
	l.applied = doc.GetRevision()
	l.cfg.Log.Info("serving the stored document", "revision", l.applied)
	return nil
}

// Run talks to the controller until ctx ends. It returns an error only when the agent's memory fails.
func (l *Loop) Run(ctx context.Context) error {
	for failed := 0; ctx.Err() == nil; {
		err := l.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case isFatal(err):
			return err
		case err == nil:
			failed = 0
			continue
		}
		failed++
		wait := delay(failed, err)
		l.cfg.Log.Warn("site not in step with the controller", "retry_in", wait.Round(time.Millisecond).String(), "error",
			err)
		select {
		case <-ctx.Done():
		case <-l.cfg.Clock.After(wait):
		}
	}
	return nil
}

func delay(failed int, err error) time.Duration {
	if f := failure.From(err); f.RetryAfter > 0 {
		return f.RetryAfter
	}
	return transport.Backoff(failed) + transport.MinBackoff
}

// fatal is an error of the agent's own memory.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

func isFatal(err error) bool {
	var f fatal
	return errors.As(err, &f)
}

// once makes one call: with reports it is answered at once, without it is held until there is news on either side.
func (l *Loop) once(ctx context.Context) error {
	batch := l.cfg.Reports.take()
	req := batch.req
	req.AppliedRevision = l.applied
	callCtx, cancel := context.WithTimeout(ctx, l.cfg.Hold+answerWait)
	defer cancel()
	if !batch.pending {
		req.HoldMs = int32(l.cfg.Hold.Milliseconds())
		defer l.cfg.Reports.onPending(l.cfg.Pause, cancel)()
	}
	var resp *fleetv1.SyncSiteResponse
	err := l.cfg.Call(callCtx, func(ctx context.Context, c fleetv1.AgentServiceClient) (err error) {
		resp, err = c.SyncSite(ctx, req)
		return err
	})
	if err != nil {
		l.cfg.Reports.giveBack(batch)
		if l.cfg.Reports.pending() && ctx.Err() == nil && errors.Is(context.Cause(callCtx), context.Canceled) {
			return nil // it was given up in favour of one with reports
		}
		return fmt.Errorf("sync with controller: %w", err)
	}
	if err := afterReported.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	return l.take(ctx, resp.GetDocument())
}

// take stores a document and serves by it.
func (l *Loop) take(ctx context.Context, doc *fleetv1.SiteDocument) error {
	if doc == nil {
		return nil
	}
	if err := beforeStored.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	if doc.GetRevision() < l.applied {
		l.cfg.Log.Warn("the controller's document is older than the one before; it is taken over",
			"revision", doc.GetRevision(), "before", l.applied)
	}
	if err := l.cfg.Store.SaveSiteDocument(ctx, doc); err != nil {
		return err
	}
	if err := afterStored.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	if err := l.cfg.Apply(ctx, doc); err != nil {
		return fmt.Errorf("serve by revision %d: %w", doc.GetRevision(), err)
	}
	if err := afterApplied.HitCtx(ctx); err != nil {
		return fatal{err}
	}
	l.applied = doc.GetRevision()
	l.cfg.Log.Info("serving by a new document", "revision", l.applied, "segments", len(doc.GetSegments()),
		"assignments", len(doc.GetAssignments()))
	return nil
}
