package maas_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

const (
	machineID = "m-1"
	mac       = "52:54:00:00:00:01"
)

// looks is how often one command may look at MAAS, callLimit how long one request may hang. A real command has hours,
// and a request a minute. A command's time is counted in looks, so that a slow machine changes nothing.
const (
	looks     = 50
	callLimit = 2 * time.Second
)

// patience counts the looks of a command, and ends its time after the last one.
type patience struct {
	clock.Clock
	left int
	end  func()
}

// After implements clock.Clock. Only the command under way waits.
func (p *patience) After(d time.Duration) <-chan time.Time {
	if p.left--; p.left == 0 {
		p.end()
	}
	return p.Clock.After(d)
}

// rig is one machine, its region, and the agent that works for it.
type rig struct {
	region *maastest.Region
	exec   *provideraction.Executor
	time   *patience
	// commands counts those that were begun; faults are due when it is at their step.
	commands int
	faults   []fault
	// deployments is how many an operation may make.
	deployments int
	// began is called when a command begins.
	began func()
	// wrong is what must never be.
	wrong []string
	// trace has the run's commands and actions, for the reader of a failure.
	trace []string
}

func newRig(t *testing.T, f flow, faults []fault) *rig {
	t.Helper()
	cfg, start := f.region, f.begin
	cfg.Delay = time.Millisecond
	r := &rig{region: maastest.New(cfg), faults: faults, deployments: max(1, f.deployments),
		time: &patience{Clock: clock.Real()}}
	t.Cleanup(r.region.Close)
	call := 10 * time.Second
	for _, f := range faults {
		if f.kind == maastest.HangBefore || f.kind == maastest.HangAfter {
			call = callLimit
		}
	}
	if start != nil {
		m := *start
		m.MACs, m.Annotations = []string{mac}, maps.Clone(start.Annotations)
		r.region.Add(m)
	}
	r.exec = provideraction.New(provideraction.Config{
		Open: func(context.Context, string, string) (*maas.Client, maas.Region, error) {
			region := maas.Region{Ref: "default", Endpoint: r.region.Endpoint(), APIKey: maastest.APIKey}
			c, err := maas.NewClient(region, call)
			return c, region, err
		},
		Identity: func(context.Context, string) (string, string, error) { return "bundle", machineID, nil },
		Power: func(context.Context, *fleetv1.CommandSpec) (string, map[string]string, error) {
			return "ipmi", map[string]string{"power_address": "10.0.0.9"}, nil
		},
		Clock: r.time, Poll: 4 * time.Millisecond,
	})
	return r
}

func (r *rig) say(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

func (r *rig) bad(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	r.say("WRONG: "+format, args...)
}

// run executes one command, through as many deaths of the agent as there are.
func (r *rig) run(operation string, action string, params map[string]string) executor.Result {
	r.commands++
	if r.began != nil {
		r.began()
	}
	scope := failpoint.NewScope()
	for _, f := range r.faults {
		if f.step == r.commands {
			defer f.arm(r, scope)()
		}
	}
	spec := &fleetv1.CommandSpec{
		CommandId: fmt.Sprintf("cmd-%d", r.commands), OperationId: operation, TargetId: machineID, Provider: "maas",
		MacAddresses: []string{mac}, Action: &fleetv1.CommandSpec_ProviderAction{ProviderAction: &fleetv1.ProviderAction{
			Action: action, Params: params, RegionRef: "default",
		}},
	}
	intent, refused, err := r.exec.Prepare(context.Background(), spec)
	if err != nil || refused != nil {
		r.bad("%s is not prepared: %v %v", action, refused, err)
		return executor.Result{}
	}
	stored, err := json.Marshal(intent)
	if err != nil {
		r.bad("%v", err)
	}
	out := r.live(spec, scope, stored)
	r.say("%s %s: %v %v %q", operation, action, out.Outcome, out.Reason, out.Message)
	r.judge(action, out)
	return out
}

// live lets the agent execute the command, die where it is to, and come back.
func (r *rig) live(spec *fleetv1.CommandSpec, scope *failpoint.Scope, stored json.RawMessage) executor.Result {
	ctx, cancel := context.WithCancelCause(failpoint.With(context.Background(), scope))
	defer cancel(nil)
	r.time.left, r.time.end = looks, func() { cancel(executor.ErrTimeout) }
	job := func() executor.Job {
		return executor.Job{
			Spec: spec, Intent: stored, Hard: ctx, StartedAt: time.Now(), Progress: func(int, string) {},
			Logf:   func(string, ...any) {},
			Output: func(string, []byte) {},
			UpdateIntent: func(_ context.Context, intent any) (err error) {
				stored, err = json.Marshal(intent)
				return err
			},
		}
	}
	out, err := r.exec.Execute(ctx, job())
	for deaths := 0; errors.Is(err, failpoint.ErrInjected) && deaths < 5; deaths++ {
		r.say("the agent dies: %v", err)
		var v executor.Verdict
		if v, err = r.exec.Resume(ctx, job()); err != nil {
			continue
		}
		if v.Settled != nil {
			return *v.Settled
		}
		out, err = r.exec.Execute(ctx, job())
	}
	if err != nil {
		return executor.Unknown("%v", err) // as in the dispatcher
	}
	return out
}

// judge holds a success against what the region has done.
func (r *rig) judge(action string, out executor.Result) {
	method := out.Evidence[evidence.EraseMethod]
	switch {
	case out.Outcome != fleetv1.CommandResult_SUCCEEDED:
		return
	case out.Evidence[evidence.ProviderSaid] == "":
		r.bad("%s succeeded without evidence", action)
	case method != "" && method != "maas-overwrite" && method != "maas-secure-erase-or-overwrite":
		r.bad("the evidence claims %q", method)
	case action == "erase" && (method == "" || r.erasures() == 0):
		r.bad("erase succeeded by %q without an erasure", method)
	}
}

func (r *rig) erasures() int {
	m, _ := r.region.ByMAC(mac)
	return m.Erased()
}

// ours reports whether the machine is one that MAAS lets us change and that we may change: a machine with a foreign
// owner or annotation is not, nor is one in use without them.
func ours(m maastest.Machine) bool {
	note := m.Annotations["ingot-machine"]
	if m.Owner != "" && m.Owner != maastest.User || note != "" && note != machineID {
		return false
	}
	switch m.Status {
	case ms.Allocated, ms.Reserved, ms.Deploying, ms.Deployed, ms.FailedDeployment:
		return note == machineID
	}
	return true
}

// hold looks at every request that the region has had.
func (r *rig) hold() {
	counts := map[string]int{}
	for _, q := range r.region.Requests("") {
		if !q.Acted && !q.TakenBack || strings.HasPrefix(q.Op, "GET ") {
			continue
		}
		if q.Op != "POST machines" && q.Op != "POST allocate" && q.Op != "POST set_workload_annotations" && !ours(q.Found) {
			r.bad("%s changed a machine of somebody else: %+v", q.Op, q.Found)
		}
		erase := q.Form.Get("erase") == "true" || q.Form.Get("secure_erase") == "true"
		if q.Acted && (q.Op == "POST deploy" || q.Op == "POST release" && erase) {
			key, may := q.Op+" by "+q.Form.Get("comment"), 1
			if q.Op == "POST deploy" {
				may = r.deployments
			}
			if counts[key]++; counts[key] == may+1 {
				r.bad("%s acted %d times", key, counts[key])
			}
		}
	}
	if list := r.region.Unlawful(); len(list) > 0 {
		r.bad("MAAS has no such way: %v", list)
	}
}
