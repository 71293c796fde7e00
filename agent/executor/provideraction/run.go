package provideraction

import (
	"context"
	"errors"
	"maps"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/internal/failure"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// run is one command towards one machine.
type run struct {
	e      *Executor
	job    executor.Job
	order  maas.Order
	action maas.Action
	client *maas.Client
	region maas.Region
	p      maas.Progress
	// mayAct: requests may be made.
	mayAct bool
	// waiting is what was waited for last, last the error of the last look.
	waiting string
	last    error
}

// follow looks and acts until the command has ended. goOn reports that a request is left that this run may not make.
func (r *run) follow(ctx context.Context) (out executor.Result, goOn bool, err error) {
	if r.action.Region {
		out, err = r.ofRegion(ctx)
		return out, false, err
	}
	for {
		out, state, err := r.turn(ctx)
		if state != turnWait {
			return out, state == turnGoOn, err
		}
		select {
		case <-ctx.Done():
			out, err := r.stopped(ctx)
			return out, false, err
		case <-r.e.cfg.Clock.After(r.e.cfg.Poll):
		}
	}
}

// The ends of a turn.
type turnState int

const (
	turnWait turnState = iota
	turnEnd
	turnGoOn
)

// turn looks once, and does what follows.
func (r *run) turn(ctx context.Context) (executor.Result, turnState, error) {
	s, err := r.client.Observe(ctx, r.action, r.order, &r.p)
	if err != nil {
		return r.cannotLook(ctx, err)
	}
	r.last = nil
	s.Now = r.e.cfg.Clock.Now()
	if err := r.noteErasing(&s); err != nil {
		return executor.Result{}, turnEnd, err
	}
	next := maas.Decide(r.order, s)
	switch {
	case next.Done:
		r.job.Logf("MAAS shows %s: %s is done", statusOf(s.M), r.order.Action)
		return executor.Succeeded(next.Evidence), turnEnd, nil
	case next.Unknown != "":
		return executor.Unknown("%s", next.Unknown), turnEnd, nil
	case next.Err != nil:
		return r.ended(next.Err), turnEnd, nil
	case next.Do != "" && !r.mayAct:
		return executor.Result{}, turnGoOn, nil
	case next.Do != "":
		return r.ask(ctx, s, next)
	}
	r.wait(next.Wait, s)
	return executor.Result{}, turnWait, nil
}

func statusOf(m *maas.Machine) string {
	if m == nil {
		return "no machine"
	}
	return m.StatusName
}

// wait logs once what it waits for.
func (r *run) wait(what string, s maas.Seen) {
	if what != r.waiting {
		r.job.Logf("MAAS shows %s; waiting for %s", statusOf(s.M), what)
		r.job.Progress(0, what)
	}
	r.waiting = what
}

// noteErasing keeps that MAAS was seen to erase, durably: a machine that is Ready does not show it any more.
func (r *run) noteErasing(s *maas.Seen) error {
	if s.M == nil || s.M.Status != ms.DiskErasing || r.p.Erasing {
		return nil
	}
	if _, asked := r.p.Asked[maas.Release]; !asked {
		return nil
	}
	r.p.Erasing, s.P.Erasing = true, true
	return r.job.UpdateIntent(r.job.Hard, r.p)
}

// cannotLook: what another look may mend is waited for, everything else ends the command.
func (r *run) cannotLook(ctx context.Context, err error) (executor.Result, turnState, error) {
	if ctx.Err() != nil {
		return executor.Result{}, turnWait, nil // the request was cut off here, which is no evidence about MAAS
	}
	if !failure.Retryable(err) {
		return r.ended(err), turnEnd, nil
	}
	if r.last == nil {
		r.job.Logf("%v; looking again", err)
	}
	r.last = err
	return executor.Result{}, turnWait, nil
}

// ask makes one request. That it may leave is durable before it does.
func (r *run) ask(ctx context.Context, s maas.Seen, next maas.Next) (executor.Result, turnState, error) {
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Result{}, turnWait, nil
	}
	before := r.p
	r.p.Asked = maps.Clone(r.p.Asked)
	if r.p.Asked == nil {
		r.p.Asked = map[maas.Verb]maas.Ask{}
	}
	if len(r.p.Asked) == 0 && s.M != nil {
		r.p.Before = s.M.Status
	}
	ask := maas.Ask{At: s.Now, Times: before.Asked[next.Do].Times + 1}
	if s.M != nil {
		ask.Was = s.M.Status
	}
	r.p.Asked[next.Do] = ask
	if err := r.job.UpdateIntent(r.job.Hard, r.p); err != nil {
		return executor.Result{}, turnEnd, err
	}
	if err := BeforeRequest.HitCtx(ctx); err != nil {
		return executor.Result{}, turnEnd, err
	}
	params, err := r.params(next)
	if err == nil {
		if next.Do.Guarded() && !r.still(ctx, s, next.Do, before) {
			r.p = before // it is not asked for; the next turn decides anew
			return executor.Result{}, turnWait, r.job.UpdateIntent(r.job.Hard, r.p)
		}
		r.job.Logf("asking MAAS to %s", next.Do)
		err = r.request(next.Do, params)
	}
	if err == nil {
		err = executor.AfterEffect.HitCtx(ctx)
		if err != nil {
			return executor.Result{}, turnEnd, err
		}
	}
	return r.answered(ctx, next.Do, before, err)
}

// still looks once more, right before a request, and reports whether MAAS still shows what the request was decided by:
// another client may have taken the machine since.
func (r *run) still(ctx context.Context, s maas.Seen, v maas.Verb, before maas.Progress) bool {
	s.P = before
	s, err := r.client.Again(ctx, r.order, s)
	return err == nil && maas.Decide(r.order, s).Do == v
}

// answered records the answer to a request.
func (r *run) answered(
	ctx context.Context, v maas.Verb, before maas.Progress, err error,
) (executor.Result, turnState, error) {
	var e *maas.Error
	known := errors.As(err, &e)
	switch {
	case err == nil:
		a := r.p.Asked[v]
		a.Answered = true
		r.p.Asked[v] = a
	case known && e.Effect == maas.Doubtful && v != maas.Create:
		a := r.p.Asked[v]
		a.Doubtful = true
		r.p.Asked[v] = a
		r.job.Logf("%v; whether it has acted is looked at", err)
	case !known || e.Effect != maas.Open:
		r.p = before // it has not acted
	default:
		r.job.Logf("%v; whether it has acted is looked at", err)
	}
	if err := r.job.UpdateIntent(r.job.Hard, r.p); err != nil {
		return executor.Result{}, turnEnd, err
	}
	switch {
	case executor.Interrupted(r.job.Hard), executor.Interrupted(ctx):
		return executor.Result{}, turnEnd, executor.ErrInterrupted
	case err != nil && (!known || e.Effect == maas.Refused):
		return r.ended(err), turnEnd, nil
	case err != nil:
		r.last = err
	}
	return executor.Result{}, turnWait, nil
}

// params returns the parameters of a request, with the secrets that only the request may hold.
func (r *run) params(next maas.Next) (map[string]string, error) {
	params := maps.Clone(next.Params)
	if next.Do != maas.Deploy {
		return params, nil
	}
	bundle, hostname, err := r.e.cfg.Identity(r.job.Hard, r.job.Spec.GetCommandId())
	if err != nil {
		return nil, err
	}
	if params["user_data"], err = maas.Render(r.region.UserData, bundle, r.order.Machine, hostname); err != nil {
		return nil, failure.Invalid("INVALID_FIELD", "%v", err)
	}
	return params, nil
}

// request makes the request. A cancel does not cut it off: its answer is worth having.
func (r *run) request(v maas.Verb, params map[string]string) error {
	if v == maas.Create {
		return r.create(params["architecture"])
	}
	return r.client.Do(r.job.Hard, v, r.p.SystemID, params)
}

func (r *run) create(architecture string) error {
	kind, params, err := r.e.cfg.Power(r.job.Hard, r.job.Spec)
	if err != nil {
		return err
	}
	if architecture == "" {
		architecture = "amd64/generic"
	}
	return r.client.Create(r.job.Hard, maas.NewMachine{
		Hostname: r.order.Machine, Architecture: architecture, MACs: r.order.MACs, PowerType: kind, PowerParams: params,
	})
}

// stopped returns the result after the end of the time, a cancel, or a stop of the agent.
func (r *run) stopped(ctx context.Context) (executor.Result, error) {
	switch {
	case executor.Interrupted(r.job.Hard), executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case !errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return r.outOfTime(r.waiting, r.last), nil
	case r.p.OpenDestructive():
		return r.ended(context.Cause(ctx)), nil
	}
	return r.canceled()
}

// canceled stops what MAAS is doing for this command, as it shows now: what was seen before the last request is over.
func (r *run) canceled() (executor.Result, error) {
	s, err := r.client.Observe(r.job.Hard, r.action, r.order, &r.p)
	switch {
	case executor.Interrupted(r.job.Hard):
		return executor.Result{}, executor.ErrInterrupted
	case err != nil:
		return executor.Canceled("canceled; whether MAAS works for it cannot be seen: %v", err), nil
	}
	if abort, why := maas.Aborts(s, r.mayAct); !abort {
		return executor.Canceled("canceled; %s", why), nil
	}
	order := r.order
	order.Action = "abort"
	if next := maas.Decide(order, s); next.Do != maas.Abort {
		return executor.Canceled("canceled; MAAS goes on by itself: %v", next.Err), nil
	}
	if err := r.client.Do(r.job.Hard, maas.Abort, s.M.SystemID,
		map[string]string{"comment": "ingot " + r.order.Operation}); err != nil {
		return executor.Canceled("canceled; MAAS goes on by itself: %v", err), nil
	}
	return executor.Canceled("canceled; MAAS was asked to abort %s", s.M.StatusName), nil
}
