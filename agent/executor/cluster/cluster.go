package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Declaration of the action: a drain takes the machine out of service.
var Declaration = executor.Declaration{Action: "cluster", Harm: executor.Interrupts}

// AfterCordon is passed when the Node is cordoned and no pod was evicted yet.
var AfterCordon = failpoint.Register("cluster.after-cordon")

// Access is a cluster for one command.
type Access struct {
	kube.Config
	// TokenID, TokenSecret and TokenLife are those of a join.
	TokenID, TokenSecret string
	TokenLife            time.Duration
}

// Config is what the executor needs.
type Config struct {
	// Access asks for what to speak to the command's cluster with. It stays in memory.
	Access func(ctx context.Context, commandID string) (Access, error)
	Clock  clock.Clock
	// Poll is how often the cluster is asked; 0 means two seconds.
	Poll time.Duration
}

// Executor is the executor of acts in clusters.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor {
	if cfg.Poll == 0 {
		cfg.Poll = 2 * time.Second
	}
	return &Executor{cfg: cfg}
}

// intent is what must be known after a restart.
type intent struct {
	// Cordoned: the Node took pods before, and this command is what changed that.
	Cordoned bool `json:"cordoned,omitempty"`
}

var acts = map[string]func(*work, context.Context) (executor.Result, error){
	"token": (*work).token, "verify": (*work).verify, "drain": (*work).drain, "uncordon": (*work).uncordon,
}

// Prepare looks at the command. The cluster can be spoken to once it was granted.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	if acts[spec.GetCluster().GetAct()] == nil {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent does not know the act %.40q",
			spec.GetCluster().GetAct())
		return nil, &r, nil
	}
	return intent{}, nil, nil
}

// Resume goes on: every act can be done again.
func (e *Executor) Resume(context.Context, executor.Job) (executor.Verdict, error) {
	return executor.GoOn(), nil
}

// work is one command under way.
type work struct {
	e      *Executor
	job    executor.Job
	a      *fleetv1.ClusterAction
	in     intent
	access Access
	c      *kube.Client
	// limit is when to stop, with time left to clean up and to say so.
	limit time.Time
}

// Execute does the act.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	w := &work{e: e, job: job, a: job.Spec.GetCluster()}
	if err := job.DecodeIntent(&w.in); err != nil {
		return executor.Result{}, err
	}
	timeout := time.Duration(job.Spec.GetTimeoutMs()) * time.Millisecond
	w.limit = job.StartedAt.Add(timeout - min(timeout/5, 10*time.Second))
	if err := w.connect(ctx); err != nil {
		return w.ended(ctx, err)
	}
	defer w.c.Close()
	return acts[w.a.GetAct()](w, ctx)
}

func (w *work) connect(ctx context.Context) error {
	err := w.again(ctx, func() (err error) {
		w.access, err = w.e.cfg.Access(ctx, w.job.Spec.GetCommandId())
		return err
	})
	if err != nil {
		return err
	}
	w.c, err = kube.New(w.access.Config)
	return err
}

// errTime is the cause when the step's time is used up.
var errTime = errors.New("the time for the step is up")

// again makes a call until it fails in no way that passes, or the time is up.
func (w *work) again(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !failure.Retryable(err) {
			return err
		}
		w.job.Logf("%v", err)
		w.job.Progress(0, err.Error())
		if end := w.pause(ctx); end != nil {
			return fmt.Errorf("%w: %w", err, end)
		}
	}
}

// pause waits for the next look.
func (w *work) pause(ctx context.Context) error {
	if !w.e.cfg.Clock.Now().Before(w.limit) {
		return errTime
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.e.cfg.Clock.After(w.e.cfg.Poll):
		return nil
	}
}

// ended turns an error into the result of an act that was not done.
func (w *work) ended(ctx context.Context, err error) (executor.Result, error) {
	switch {
	case errors.Is(err, failpoint.ErrInjected):
		return executor.Result{}, err
	case executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return executor.Canceled("stopped: %v", err), nil
	}
	if r, ok := executor.FromFailure(err); ok {
		return r, nil
	}
	if errors.Is(err, errTime) || errors.Is(err, executor.ErrTimeout) {
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "%v", err).AndRetry(), nil
	}
	return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v", err).AndRetry(), nil
}

// seen begins the evidence of an act.
func (w *work) seen(more map[string]string) map[string]string {
	out := map[string]string{evidence.ClusterName: w.a.GetClusterRef(), "node": w.a.GetNodeName()}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func (w *work) machine() kube.Machine {
	return kube.Machine{BootID: w.a.GetBootId(), SystemUUID: w.a.GetSystemUuid()}
}

// node reads the machine's Node; one that is another machine is an error.
func (w *work) node(ctx context.Context) (n *kube.Node, by string, err error) {
	err = w.again(ctx, func() (err error) {
		n, err = w.c.Node(ctx, w.a.GetNodeName())
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if by = kube.Recognize(n, w.machine()); by == "" {
		info := n.Status.NodeInfo
		return n, "", failure.Precondition("CLUSTER_NODE_MISMATCH",
			"Node %s is another machine: it has system UUID %s and boot %s, the machine %s and %s",
			w.a.GetNodeName(), info.SystemUUID, info.BootID, w.a.GetSystemUuid(), w.a.GetBootId())
	}
	return n, by, nil
}

// token makes the token of a join.
func (w *work) token(ctx context.Context) (executor.Result, error) {
	t := kube.Token{
		ID: w.access.TokenID, Secret: w.access.TokenSecret, Expires: w.e.cfg.Clock.Now().Add(w.access.TokenLife),
		Description: fmt.Sprintf("for one join: machine %s, operation %s", w.job.Spec.GetTargetId(),
			w.job.Spec.GetOperationId()),
	}
	if err := w.again(ctx, func() error { return w.c.MakeToken(ctx, t) }); err != nil {
		return w.ended(ctx, err)
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	w.job.Logf("cluster %s takes token %s until %s", w.a.GetClusterRef(), t.ID, t.Expires.UTC().Format(time.RFC3339))
	return executor.Succeeded(w.seen(map[string]string{"join_token_id": t.ID})), nil
}

// uncordon lets pods be placed on the Node again.
func (w *work) uncordon(ctx context.Context) (executor.Result, error) {
	n, by, err := w.node(ctx)
	if kube.NotFound(err) {
		return w.noNode(), nil
	}
	if err != nil {
		return w.ended(ctx, err)
	}
	err = w.again(ctx, func() (err error) {
		n, err = w.c.Cordon(ctx, n, false)
		return err
	})
	if hit := executor.AfterEffect.HitCtx(ctx); hit != nil {
		return executor.Result{}, hit
	}
	if err != nil {
		return w.ended(ctx, err)
	}
	if n.Spec.Unschedulable {
		return executor.Failed(baremetalv1.Reason_EVIDENCE_MISSING, "the Node still takes no pods").AndRetry(), nil
	}
	return executor.Succeeded(w.seen(map[string]string{evidence.NodeSchedulable: "true", evidence.NodeIdentity: by})), nil
}

func (w *work) noNode() executor.Result {
	return executor.Failed(baremetalv1.Reason_CLUSTER_NODE_NOT_READY, "cluster %s has no Node %s", w.a.GetClusterRef(),
		w.a.GetNodeName())
}
