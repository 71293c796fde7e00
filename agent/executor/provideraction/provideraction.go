package provideraction

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// Declaration of the action: a release loses what the machine holds.
var Declaration = executor.Declaration{Action: "provider_action", Harm: executor.Destroys}

// BeforeRequest is passed when the intent of a request is durable and the request has not left.
var BeforeRequest = failpoint.Register("maas.before-request")

// Provider is the name that machines of MAAS have in spec.provider.
const Provider = "maas"

// Config is what the executor needs.
type Config struct {
	// Open returns a client of the region that a machine names.
	Open func(ctx context.Context, machineID, regionRef string) (*maas.Client, maas.Region, error)
	// Identity returns the one-time bundle that the system which the command deploys enrols with.
	Identity func(ctx context.Context, commandID string) (bundle, hostname string, err error)
	// Power returns the power settings for a machine that is new to MAAS.
	Power func(ctx context.Context, spec *fleetv1.CommandSpec) (powerType string, params map[string]string, err error)
	Clock clock.Clock
	// Poll is how often MAAS is looked at; 0 means 5 s.
	Poll time.Duration
}

// Executor is the executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor {
	if cfg.Poll == 0 {
		cfg.Poll = 5 * time.Second
	}
	return &Executor{cfg: cfg}
}

// Prepare checks the order. It sends nothing to the provider.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	if r := checked(spec); r != nil {
		return nil, r, nil
	}
	return maas.Progress{}, nil, nil
}

func checked(spec *fleetv1.CommandSpec) *executor.Result {
	refuse := func(reason baremetalv1.Reason, format string, args ...any) *executor.Result {
		r := executor.Refused(reason, format, args...)
		return &r
	}
	a := spec.GetProviderAction()
	action, ok := maas.ActionOf(a.GetAction())
	switch {
	case spec.GetProvider() != Provider:
		return refuse(baremetalv1.Reason_CAPABILITY_MISSING, "machines of provider %q have no provider actions",
			spec.GetProvider())
	case !ok:
		return refuse(baremetalv1.Reason_INVALID_FIELD, "there is no action %.64q", a.GetAction())
	case len(spec.GetMacAddresses()) == 0 && !action.Region:
		return refuse(baremetalv1.Reason_INVALID_FIELD, "the machine has no MAC address by which MAAS could know it")
	}
	for name := range a.GetParams() {
		if !slices.Contains(action.Params, name) {
			return refuse(baremetalv1.Reason_INVALID_FIELD, "%.64q is no parameter of %s", name, action.Name)
		}
	}
	return nil
}

// Execute goes on from the point that the intent records.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	r, out, err := e.newRun(ctx, job)
	if r == nil || err != nil {
		return out, err
	}
	r.mayAct = true
	out, _, err = r.follow(ctx)
	return out, err
}

// Resume looks, and follows what was asked for before. It asks for nothing: where something is left to ask for, the
// command goes on under another grant.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	r, _, err := e.newRun(ctx, job)
	switch {
	case err != nil:
		return executor.Verdict{}, err
	case r == nil:
		return executor.GoOn(), nil // nothing was asked for; Execute returns the refusal
	case len(r.p.Asked) == 0:
		return executor.GoOn(), nil
	}
	out, goOn, err := r.follow(ctx)
	switch {
	case err != nil:
		return executor.Verdict{}, err
	case goOn:
		return executor.GoOn(), nil
	}
	return executor.Settle(out), nil
}

// newRun opens the region. Without a run the result has the reason.
func (e *Executor) newRun(ctx context.Context, job executor.Job) (*run, executor.Result, error) {
	spec := job.Spec
	a := spec.GetProviderAction()
	r := &run{e: e, job: job, order: maas.Order{
		Action: a.GetAction(), Params: a.GetParams(), Operation: spec.GetOperationId(), Machine: spec.GetTargetId(),
		Serial: a.GetSerial(),
		MACs:   spec.GetMacAddresses(),
	}}
	r.action, _ = maas.ActionOf(a.GetAction())
	if err := job.DecodeIntent(&r.p); err != nil {
		return nil, executor.Result{}, err
	}
	var err error
	r.client, r.region, err = e.cfg.Open(ctx, spec.GetTargetId(), a.GetRegionRef())
	r.order.Retain = r.region.Retain
	switch {
	case err == nil:
		return r, executor.Result{}, nil
	case executor.Interrupted(ctx):
		return nil, executor.Result{}, executor.ErrInterrupted
	}
	return nil, r.ended(err), nil
}

// ofRegion executes an action that concerns the region and no machine.
func (r *run) ofRegion(ctx context.Context) (executor.Result, error) {
	switch r.order.Action {
	case "render_user_data":
		text, err := maas.Render(r.region.UserData, "sample", r.order.Machine, r.order.Machine)
		if err != nil {
			return executor.Failed(baremetalv1.Reason_STAGE_CHECK_FAILED, "%v", err), nil
		}
		sum := sha256.Sum256([]byte(text))
		return executor.Succeeded(map[string]string{evidence.ProviderSaid: "not asked",
			"user_data_sha256": hex.EncodeToString(sum[:])}), nil
	default:
		version, err := r.client.Version(ctx)
		if err != nil {
			return r.ended(err), nil
		}
		return executor.Succeeded(map[string]string{evidence.ProviderSaid: "MAAS " + version}), nil
	}
}

// ended makes a result of an error that ends the command. An unknown outcome stays unknown.
func (r *run) ended(err error) executor.Result {
	if r.p.OpenDestructive() {
		return executor.Unknown("asked for %v, and what came of it cannot be seen: %v", r.p.OpenVerbs(), err)
	}
	if out, ok := executor.FromFailure(err); ok {
		return out
	}
	return executor.Failed(baremetalv1.Reason_MAAS_UNREACHABLE, "%v", err).AndRetry()
}

var errTooLate = errors.New("no time left")

func (r *run) outOfTime(waited string, last error) executor.Result {
	switch {
	case last != nil:
		return r.ended(last)
	case r.p.OpenDestructive():
		return r.ended(fmt.Errorf("%w, waiting for %s", errTooLate, waited))
	}
	return executor.Failed(baremetalv1.Reason_MAAS_FAILED, "still waiting for %s when the time was up", waited).AndRetry()
}
