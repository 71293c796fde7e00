package reconfig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/clock"
	keys "github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

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
	// Prove makes new contact with the controller: DNS, TCP and mTLS.
	Prove func(ctx context.Context) error
	// Controllers gives the addresses that no policy may cut off.
	Controllers func(ctx context.Context) []netip.AddrPort
}

// Executor is the reconfig executor.
type Executor struct{ cfg Config }

var _ command.Executor = (*Executor)(nil)

// New makes the executor for one machine.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

type intent struct {
	Generation int64    `json:"generation"`
	Digest     string   `json:"digest"`
	Want       settings `json:"want"`
	Rollback   settings `json:"rollback"`
}

func (e *Executor) key() string { return "reconfig." + e.cfg.TargetID }

// Prepare decides whether there is something to do and notes what to go back to.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *command.Result, error) {
	a := spec.GetReconfig()
	want, refused := parse(a, e.cfg.Controllers(ctx))
	if refused != nil {
		return nil, refused, nil
	}
	var now committed
	if _, err := e.cfg.Docs.GetJSON(ctx, e.key(), &now); err != nil {
		return nil, nil, err
	}
	if now.Generation > a.GetGeneration() {
		return nil, refuse(baremetalv1.Reason_INVALID_FIELD, "generation %d comes after %d", a.GetGeneration(), now.Generation), nil
	}
	if now.Generation == a.GetGeneration() {
		r, err := e.repeat(ctx, now, digestOf(a.GetConfig()))
		return nil, r, err
	}
	name, err := e.cfg.Host.Hostname(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read host name: %w", err)
	}
	return intent{
		Generation: a.GetGeneration(), Digest: digestOf(a.GetConfig()), Want: want,
		Rollback: settings{Hostname: name, Firewall: now.Settings.Firewall},
	}, nil, nil
}

// repeat answers a generation that is committed already. What somebody else has changed since is reported and
// left alone.
func (e *Executor) repeat(ctx context.Context, now committed, digest string) (*command.Result, error) {
	if now.Digest != digest {
		return refuse(baremetalv1.Reason_INVALID_FIELD, "generation %d is committed with another content", now.Generation), nil
	}
	evidence, diff, err := e.readBack(ctx, now.Settings)
	if err != nil {
		return nil, err
	}
	if diff != "" {
		r := command.Failed(baremetalv1.Reason_EXECUTION_FAILED, "generation %d is committed, and was changed since: %s", now.Generation, diff)
		return &r, nil
	}
	evidence["no_op"] = "true"
	evidence[keys.ConfigDigest] = digest
	r := command.Succeeded(evidence)
	return &r, nil
}

// Execute applies, reads back, proves and commits, or rolls back.
func (e *Executor) Execute(ctx context.Context, job command.Job) (command.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return command.Result{}, err
	}
	if errors.Is(context.Cause(ctx), command.ErrCanceled) {
		return command.Canceled("canceled before anything was changed"), nil
	}
	job.Logf("applying configuration generation %d", in.Generation)
	first, err := e.apply(ctx, job.Effect(), in.Want)
	if r, ok := command.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok && first {
		return r, nil
	}
	if err := command.AfterEffect.HitCtx(ctx); err != nil {
		return command.Result{}, err
	}
	if err == nil {
		err = e.confirm(ctx, job, in)
	}
	if err != nil {
		return e.undo(ctx, job, in, err)
	}
	return e.commit(ctx, in)
}

// apply sets the host name first. first says that an error came before any change.
func (e *Executor) apply(ctx context.Context, effect host.Effect, s settings) (first bool, err error) {
	first = true
	if s.Hostname != "" {
		now, err := e.cfg.Host.Hostname(ctx)
		if err != nil {
			return true, fmt.Errorf("read host name: %w", err)
		}
		if now != s.Hostname {
			if err := e.cfg.Host.SetHostname(ctx, effect, s.Hostname); err != nil {
				return true, fmt.Errorf("set host name: %w", err)
			}
			first = false
		}
	}
	if s.Firewall != nil {
		if err := e.cfg.Host.ApplyFirewall(ctx, effect, *s.Firewall); err != nil {
			return first, fmt.Errorf("apply firewall: %w", err)
		}
	}
	return false, nil
}

// readBack gives what the world shows, and how it differs from what was wanted.
func (e *Executor) readBack(ctx context.Context, s settings) (evidence map[string]string, diff string, err error) {
	evidence = map[string]string{}
	name, err := e.cfg.Host.Hostname(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read back host name: %w", err)
	}
	evidence["hostname"] = name
	if s.Hostname != "" && name != s.Hostname {
		diff = fmt.Sprintf("host name is %q, wanted %q; ", name, s.Hostname)
	}
	if s.Firewall == nil {
		return evidence, diff, nil
	}
	fw, err := e.cfg.Host.Firewall(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read back firewall: %w", err)
	}
	evidence["firewall_digest"] = fw.Digest
	if !fw.Holds(*s.Firewall) {
		diff += fmt.Sprintf("firewall is generation %d digest %s, wanted %d %s", fw.Generation, fw.Digest,
			s.Firewall.Generation, s.Firewall.Digest())
	}
	return evidence, diff, nil
}

// errNotThere: the change was accepted, and the world does not show it.
var errNotThere = errors.New("read back differs")

// confirm reads back and then makes new contact, again and again until the time to confirm is up.
func (e *Executor) confirm(ctx context.Context, job command.Job, in intent) error {
	_, diff, err := e.readBack(ctx, in.Want)
	if err != nil {
		return err
	}
	if diff != "" {
		return fmt.Errorf("%w: %s", errNotThere, diff)
	}
	limit := time.Duration(job.Spec.GetReconfig().GetConfirmTimeoutMs()) * time.Millisecond
	if limit <= 0 {
		limit = defaultConfirm
	}
	up := e.cfg.Clock.After(limit)
	for {
		once, cancel := context.WithTimeout(ctx, min(limit, proveOnce))
		err := e.cfg.Prove(once)
		cancel()
		if err == nil {
			return nil
		}
		job.Logf("not confirmed yet: %v", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-up:
			return fmt.Errorf("no new contact with the controller within %s: %w", limit, err)
		case <-e.cfg.Clock.After(min(proveEvery, limit)):
		}
	}
}

func (e *Executor) commit(ctx context.Context, in intent) (command.Result, error) {
	if err := beforeCommit.HitCtx(ctx); err != nil {
		return command.Result{}, err
	}
	done := committed{Generation: in.Generation, Digest: in.Digest, Settings: in.Want}
	if done.Settings.Firewall == nil {
		done.Settings.Firewall = in.Rollback.Firewall
	}
	if err := e.cfg.Docs.PutJSON(ctx, e.key(), done); err != nil {
		return command.Result{}, err
	}
	if err := afterCommit.HitCtx(ctx); err != nil {
		return command.Result{}, err
	}
	return e.succeeded(ctx, in)
}

func (e *Executor) succeeded(ctx context.Context, in intent) (command.Result, error) {
	evidence, diff, err := e.readBack(context.WithoutCancel(ctx), in.Want)
	if err != nil {
		return command.Result{}, err
	}
	evidence[keys.ConfigDigest] = in.Digest
	evidence["generation"] = fmt.Sprint(in.Generation)
	if diff != "" {
		return command.Failed(baremetalv1.Reason_EVIDENCE_MISSING, "committed, and then changed: %s", diff).WithEvidence(evidence), nil
	}
	return command.Succeeded(evidence), nil
}
