package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/kubeadm"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "join", Harm: executor.Changes}

// BeforeKubeadm is passed when the token is here and kubeadm was not started.
var BeforeKubeadm = failpoint.Register("join.before-kubeadm")

// Machine is what of a host is needed.
type Machine interface {
	Membership(ctx context.Context) (kubeadm.Membership, error)
	Join(ctx context.Context, e effect.Cause, r kubeadm.JoinRequest, output func(stream string, data []byte)) error
	EndJoin(ctx context.Context, e effect.Cause, dir string) error
	UndoJoin(ctx context.Context, e effect.Cause, output func(stream string, data []byte)) error
}

// Material is what one joins with.
type Material struct {
	// APIServer is host:port.
	APIServer string
	CAHashes  []string
	// Token is a bootstrap token, id and secret.
	Token string
}

// Config is what the executor needs.
type Config struct {
	Machine  Machine
	Material func(ctx context.Context, commandID string) (Material, error)
	Clock    clock.Clock
	// Dir is where the file with the token is put while kubeadm runs.
	Dir string
}

// Executor is the executor of joins.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

// intent is empty: what must be known after a restart is read from the machine.
type intent struct{}

// Prepare reads which cluster the machine is in.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	if len(spec.GetJoin().GetCaHashes()) == 0 {
		r := executor.Refused(baremetalv1.Reason_CLUSTER_NOT_FOUND, "the CA of cluster %s is not known",
			spec.GetJoin().GetClusterRef())
		return nil, &r, nil
	}
	m, err := e.cfg.Machine.Membership(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r := foreign(spec.GetJoin(), m); r != nil {
		return nil, r, nil
	}
	return intent{}, nil, nil
}

// foreign refuses to take a machine out of another cluster.
func foreign(a *fleetv1.JoinAction, m kubeadm.Membership) *executor.Result {
	if !m.Joined || pinned(a, m) != "" {
		return nil
	}
	r := executor.Refused(baremetalv1.Reason_CLUSTER_OTHER_MEMBER,
		"the machine is in another cluster, at %s; drain it there, run kubeadm reset on it, or reimage it", m.Server)
	return &r
}

// pinned returns the CA that the machine's kubelet trusts and the command names. Only a member's kubelet trusts any.
func pinned(a *fleetv1.JoinAction, m kubeadm.Membership) string {
	for _, h := range m.CAHashes {
		if slices.Contains(a.GetCaHashes(), h) {
			return h
		}
	}
	return ""
}

// Execute joins, unless the machine is in the cluster.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	a := job.Spec.GetJoin()
	m, err := e.cfg.Machine.Membership(ctx)
	if err != nil {
		return executor.Result{}, err
	}
	if r := foreign(a, m); r != nil {
		return *r, nil
	}
	if m.Joined {
		job.Logf("the machine is in cluster %s already", a.GetClusterRef())
		return joined(a, m, "before"), nil
	}
	if m.Begun {
		job.Logf("removing what a join that was not finished has left")
		if err := e.cfg.Machine.UndoJoin(ctx, job.Effect(), job.Output); err != nil {
			return e.ended(ctx, job, fmt.Errorf("kubeadm reset: %w", err))
		}
	}
	material, err := e.material(ctx, job)
	if err != nil {
		return e.ended(ctx, job, err)
	}
	if err := BeforeKubeadm.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	said := complaint{to: job.Output}
	err = e.cfg.Machine.Join(ctx, job.Effect(), kubeadm.JoinRequest{
		APIServer: material.APIServer, Token: material.Token, NodeName: a.GetNodeName(), CAHashes: material.CAHashes,
		Dir: e.cfg.Dir,
	}, said.output)
	if hit := executor.AfterEffect.HitCtx(ctx); hit != nil {
		return executor.Result{}, hit
	}
	if err != nil && said.text() != "" {
		err = fmt.Errorf("%w: %s", err, said.text())
	}
	return e.ended(ctx, job, err)
}

// complaint keeps a program's error message: its last line of errors that begins as one, or its last one.
type complaint struct {
	to         func(stream string, data []byte)
	mu         sync.Mutex
	last, best string
}

// maxComplaint bounds what of it goes into a message, in bytes.
const maxComplaint = 300

func (c *complaint) output(stream string, data []byte) {
	c.to(stream, data)
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case stream != "stderr" || line == "":
		case strings.HasPrefix(line, "error"):
			c.best = line
		default:
			c.last = line
		}
	}
}

func (c *complaint) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.best
	if text == "" {
		text = c.last
	}
	return strings.ToValidUTF8(text[:min(len(text), maxComplaint)], "")
}

// askEvery is how often the controller is asked for the material while it is away.
const askEvery = 2 * time.Second

func (e *Executor) material(ctx context.Context, job executor.Job) (Material, error) {
	for {
		m, err := e.cfg.Material(ctx, job.Spec.GetCommandId())
		if err == nil && !slices.Equal(sorted(m.CAHashes), sorted(job.Spec.GetJoin().GetCaHashes())) {
			return m, errors.New("the cluster's CA has changed since the command was made")
		}
		if !failure.Retryable(err) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, errors.Join(context.Cause(ctx), err)
		case <-e.cfg.Clock.After(askEvery):
		}
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// ended reads what came of it. Nothing of the join runs any more.
func (e *Executor) ended(ctx context.Context, job executor.Job, cause error) (executor.Result, error) {
	if executor.Interrupted(job.Hard) && cause != nil {
		return executor.Result{}, executor.ErrInterrupted
	}
	tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if err := e.cfg.Machine.EndJoin(tidy, job.Effect(), e.cfg.Dir); err != nil {
		return executor.Unknown("kubeadm may still be running: %v", err), nil
	}
	a := job.Spec.GetJoin()
	m, err := e.cfg.Machine.Membership(tidy)
	switch {
	case err != nil:
		return executor.Unknown("which cluster the machine is in cannot be read: %v", err), nil
	case pinned(a, m) != "":
		return joined(a, m, "kubeadm"), nil
	case errors.Is(cause, kubeadm.ErrNoKubeadm):
		return executor.Failed(baremetalv1.Reason_KUBEADM_FAILED,
			"kubeadm is not on the machine; put it into the image, or install it by a script"), nil
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return executor.Canceled("stopped before the machine was in the cluster"), nil
	}
	if r, ok := executor.FromRefusal(cause, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return r, nil
	}
	if r, ok := executor.FromFailure(cause); ok {
		return r, nil
	}
	if cause == nil {
		cause = errors.New("kubeadm is content, and the kubelet has no credentials of the cluster")
	}
	return executor.Failed(baremetalv1.Reason_KUBEADM_FAILED, "%v; its output is in the operation's log",
		cause).AndRetry(), nil
}

// tidyTime bounds ending kubeadm and reading the state.
const tidyTime = 8 * time.Second

func joined(a *fleetv1.JoinAction, m kubeadm.Membership, by string) executor.Result {
	return executor.Succeeded(map[string]string{
		evidence.ClusterName: a.GetClusterRef(), evidence.JoinedCluster: pinned(a, m), "node": a.GetNodeName(),
		"api_server": m.Server, "joined_by": by,
	})
}

// Resume ends what may still run, and reads the world.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	if err := e.cfg.Machine.EndJoin(ctx, job.Effect(), e.cfg.Dir); err != nil {
		if executor.Interrupted(ctx) {
			return executor.Verdict{}, executor.ErrInterrupted
		}
		return executor.Settle(executor.Unknown("kubeadm may still be running: %v", err)), nil
	}
	m, err := e.cfg.Machine.Membership(ctx)
	switch {
	case err != nil:
		return executor.Settle(executor.Unknown("which cluster the machine is in cannot be read: %v", err)), nil
	case pinned(job.Spec.GetJoin(), m) != "":
		return executor.Settle(joined(job.Spec.GetJoin(), m, "kubeadm")), nil
	}
	return executor.GoOn(), nil
}
