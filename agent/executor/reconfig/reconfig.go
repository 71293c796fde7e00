package reconfig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/internal/clock"
	keys "github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "reconfig", Harm: executor.Changes}

var (
	beforeCommit = failpoint.Register("agent.reconfig-before-commit")
	afterCommit  = failpoint.Register("agent.reconfig-after-commit")
)

const (
	defaultConfirm = time.Minute
	proveEvery     = time.Second
	proveOnce      = 10 * time.Second
	// undoTime limits a rollback, which runs after its command's own time is up.
	undoTime = time.Minute
)

// Documents is durable memory for small documents; the agent's state is one.
type Documents interface {
	PutJSON(ctx context.Context, key string, value any) error
	GetJSON(ctx context.Context, key string, into any) (bool, error)
}

// Config is what the executor needs.
type Config struct {
	Host  host.Host
	Docs  Documents
	Clock clock.Clock
	// TargetID is the machine whose configuration this is.
	TargetID string
	// Prove makes new contact with the controller: DNS, TCP and mTLS. It obeys transport.WithSource.
	Prove func(ctx context.Context) error
	// Controllers returns the addresses that no policy may cut off.
	Controllers func(ctx context.Context) []netip.AddrPort
	// Moved is called when changed interfaces were committed: new connections work, old ones may be dead. After a
	// rollback the old ones are as good as they were. It may be nil.
	Moved func()
}

// Executor is the reconfig executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for one machine.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

type intent struct {
	Generation int64    `json:"generation"`
	Digest     string   `json:"digest"`
	Want       settings `json:"want"`
	Rollback   settings `json:"rollback"`
	// Before is what was committed.
	Before settings `json:"before"`
	// Saved is the way back for the network, nil unless Want has one.
	Saved *network.SavedNetwork `json:"saved,omitempty"`
	// AcceptedDrift is the digest of the drift that the order accepts; "" accepts none. AnyDrift accepts all of them.
	AcceptedDrift string `json:"accepted_drift,omitempty"`
	AnyDrift      bool   `json:"any_drift,omitempty"`
}

func (e *Executor) key() string { return "reconfig." + e.cfg.TargetID }

// Prepare decides whether there is something to do and notes what to go back to.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	a := spec.GetReconfig()
	want, refused := parse(a, e.cfg.Controllers(ctx))
	if refused != nil {
		return nil, refused, nil
	}
	now, err := e.committed(ctx)
	if err != nil {
		return nil, nil, err
	}
	if now.Generation > a.GetGeneration() {
		return nil, refuse(baremetalv1.Reason_INVALID_FIELD, "generation %d comes after %d", a.GetGeneration(),
			now.Generation), nil
	}
	if now.Generation == a.GetGeneration() {
		r, err := e.repeat(ctx, now, digestOf(a.GetConfig()))
		return nil, r, err
	}
	if refused, err := e.refused(ctx, want, now); refused != nil || err != nil {
		return nil, refused, err
	}
	in := intent{
		Generation: a.GetGeneration(), Digest: digestOf(a.GetConfig()), Want: want.settings, Before: now.Settings,
		AcceptedDrift: want.acceptedDrift, AnyDrift: want.acceptDrift,
	}
	err = e.noteRollback(ctx, &in)
	return in, nil, err
}

func (e *Executor) committed(ctx context.Context) (now committed, err error) {
	_, err = e.cfg.Docs.GetJSON(ctx, e.key(), &now)
	return now, err
}

// refused returns the refusal of an order that the host cannot apply, or that meets a foreign change.
func (e *Executor) refused(ctx context.Context, want ordered, now committed) (*executor.Result, error) {
	if want.Network != nil {
		err := e.cfg.Host.NetworkSupport(ctx, *want.Network)
		if errors.Is(err, effect.ErrNotWired) {
			return refuse(baremetalv1.Reason_NETWORK_RECONFIG_NOT_WIRED, "%v", err), nil
		}
		if err != nil {
			return nil, err
		}
	}
	if want.acceptDrift {
		return nil, nil
	}
	evidence, diff, err := e.readBack(ctx, now.Settings, nil)
	if err != nil {
		return nil, err
	}
	drift := Drift{Generation: now.Generation, Diff: diff}
	if drift.acceptedBy(want.acceptedDrift) {
		want.overwrite(evidence["firewall_digest"])
		return nil, nil
	}
	r := executor.Refused(baremetalv1.Reason_CONFIG_DRIFT, "%s", drift.refusal(want.acceptedDrift)).
		WithEvidence(evidence).WithEvidence(drift.evidence())
	return &r, nil
}

// noteRollback reads what the order will change.
func (e *Executor) noteRollback(ctx context.Context, in *intent) error {
	name, err := e.cfg.Host.Hostname(ctx)
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	in.Rollback = settings{Hostname: name, Firewall: in.Before.Firewall}
	if in.Want.Network == nil {
		return nil
	}
	saved, err := e.cfg.Host.SaveNetwork(ctx, *in.Want.Network)
	if err != nil {
		return fmt.Errorf("save network: %w", err)
	}
	in.Saved = &saved
	return nil
}

// repeat answers a generation that is committed already. Foreign changes since then are reported and kept.
func (e *Executor) repeat(ctx context.Context, now committed, digest string) (*executor.Result, error) {
	if now.Digest != digest {
		return refuse(baremetalv1.Reason_INVALID_FIELD, "generation %d is committed with another content", now.Generation),
			nil
	}
	evidence, diff, err := e.readBack(ctx, now.Settings, nil)
	if err != nil {
		return nil, err
	}
	if diff != "" {
		r := executor.Failed(baremetalv1.Reason_CONFIG_DRIFT, "generation %d is committed, and was changed since:\n%s",
			now.Generation, shorten(diff)).
			WithEvidence(Drift{Diff: diff}.evidence())
		return &r, nil
	}
	evidence["no_op"] = "true"
	evidence[keys.ConfigDigest] = digest
	r := executor.Succeeded(evidence)
	return &r, nil
}

// Execute guards, applies, reads back, proves and commits, or rolls back.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Canceled("canceled before anything was changed"), nil
	}
	job.Logf("applying configuration generation %d", in.Generation)
	limit := confirmLimit(job)
	started := e.cfg.Clock.Now()
	if r, err := e.driftedSince(ctx, in); err != nil {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "compare with what was committed: %v", err).AndRetry(),
			nil
	} else if r != nil {
		return *r, nil
	}
	if err := e.guard(ctx, job, in, limit); err != nil {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "guard the change: %v", err).AndRetry(), nil
	}
	accepted, err := e.apply(ctx, job.Effect(), in.Want, limit)
	if r, ok := refusal(err); ok && accepted == (settings{}) {
		return r, e.rollback(context.WithoutCancel(ctx), job, in)
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	var p proof
	if err == nil {
		p, err = e.confirm(ctx, job, in, started.Add(limit))
	}
	if err != nil {
		r, err := e.undo(ctx, job, in, e.mayCome(ctx, in, accepted, err))
		return r.WithEvidence(p.evidence()), err
	}
	return e.commit(ctx, job, in, p)
}

func refusal(err error) (executor.Result, bool) {
	if errors.Is(err, effect.ErrNotWired) {
		return executor.Failed(baremetalv1.Reason_NETWORK_RECONFIG_NOT_WIRED, "%v", err), true
	}
	return executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING)
}

func confirmLimit(job executor.Job) time.Duration {
	limit := time.Duration(job.Spec.GetReconfig().GetConfirmTimeoutMs()) * time.Millisecond
	if limit <= 0 {
		return defaultConfirm
	}
	return limit
}

// apply makes the harmless changes first and those that may cut off the agent last. It returns the settings that the
// host has accepted.
func (e *Executor) apply(
	ctx context.Context, effect effect.Cause, s settings, limit time.Duration,
) (accepted settings, err error) {
	if s.Hostname != "" {
		now, err := e.cfg.Host.Hostname(ctx)
		if err != nil {
			return accepted, fmt.Errorf("read host name: %w", err)
		}
		if now != s.Hostname {
			if err := e.cfg.Host.SetHostname(ctx, effect, s.Hostname); err != nil {
				return accepted, fmt.Errorf("set host name: %w", err)
			}
			accepted.Hostname = s.Hostname
		}
	}
	if s.Firewall != nil {
		if err := e.cfg.Host.ApplyFirewall(ctx, effect, *s.Firewall); err != nil {
			return accepted, fmt.Errorf("apply firewall: %w", err)
		}
		accepted.Firewall = s.Firewall
	}
	if s.Network != nil {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := e.cfg.Host.ApplyNetwork(ctx, effect, *s.Network); err != nil {
			return accepted, fmt.Errorf("apply network: %w", err)
		}
		accepted.Network = s.Network
	}
	return accepted, nil
}

func (e *Executor) commit(ctx context.Context, job executor.Job, in intent, p proof) (executor.Result, error) {
	if err := beforeCommit.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	if w, ok := e.cfg.Host.(host.Watchdog); ok {
		if err := w.CommitGuard(ctx, job.Spec.GetCommandId()); err != nil {
			return e.undo(ctx, job, in, err)
		}
	}
	return e.finish(ctx, in, p)
}

// finish makes our memory agree with the commit.
func (e *Executor) finish(ctx context.Context, in intent, p proof) (executor.Result, error) {
	done := committed{Generation: in.Generation, Digest: in.Digest, Settings: in.Want.over(in.Before)}
	if err := e.cfg.Docs.PutJSON(ctx, e.key(), done); err != nil {
		return executor.Result{}, err
	}
	if err := afterCommit.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	e.moved(in)
	r, err := e.succeeded(ctx, in)
	if kept := e.keepFirewall(ctx, done.Settings.Firewall); kept != nil {
		r = r.WithEvidence(map[string]string{"firewall_at_boot": kept.Error()})
	}
	return r.WithEvidence(p.evidence()), err
}

func (e *Executor) moved(in intent) {
	if in.Want.Network != nil && e.cfg.Moved != nil {
		e.cfg.Moved()
	}
}

func (e *Executor) succeeded(ctx context.Context, in intent) (executor.Result, error) {
	evidence, diff, err := e.readBack(context.WithoutCancel(ctx), in.Want, in.Saved)
	if err != nil {
		return executor.Result{}, err
	}
	evidence[keys.ConfigDigest] = in.Digest
	evidence["generation"] = fmt.Sprint(in.Generation)
	if diff != "" {
		return executor.Failed(baremetalv1.Reason_EVIDENCE_MISSING, "committed, and then changed:\n%s",
			shorten(diff)).WithEvidence(evidence), nil
	}
	return executor.Succeeded(evidence), nil
}
