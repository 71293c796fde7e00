package provideraction_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// patience is how long a whole command may take.
const patience = 30 * time.Second

const mac = "52:54:00:00:00:01"

// rig is one executor, one region, and the intent of one command as an agent keeps it.
type rig struct {
	t      *testing.T
	region *maastest.Region
	exec   *provideraction.Executor
	key    string
	call   time.Duration
	intent json.RawMessage
	// writes of the intent until the agent dies; 0 is never.
	dieAt, writes int
	bundles       int
	// written runs after the nth write of the intent.
	written func(n int)
	// power is the error of a look-up of the machine's power settings.
	power error
}

var errDead = errors.New("the agent is dead")

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, maastest.Config{})
}

func newRigWith(t *testing.T, cfg maastest.Config) *rig {
	t.Helper()
	cfg.Delay = 5 * time.Millisecond
	r := &rig{t: t, region: maastest.New(cfg), key: maastest.APIKey, call: 10 * time.Second}
	t.Cleanup(r.region.Close)
	r.exec = provideraction.New(provideraction.Config{
		Open: func(context.Context, string, string) (*maas.Client, maas.Region, error) {
			region := maas.Region{Ref: "default", Endpoint: r.region.Endpoint(), APIKey: r.key}
			c, err := maas.NewClient(region, r.call)
			return c, region, err
		},
		Identity: func(context.Context, string) (string, string, error) { r.bundles++; return "bundle-1", "m-1", nil },
		Power: func(context.Context, *fleetv1.CommandSpec) (string, map[string]string, error) {
			return "ipmi", map[string]string{"power_address": "10.0.0.9", "power_user": "u", "power_pass": "p"}, r.power
		},
		Clock: clock.Real(), Poll: 2 * time.Millisecond,
	})
	return r
}

func spec(action string, params map[string]string) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		CommandId: "cmd-1", OperationId: "op-1", TargetId: "m-1", Provider: "maas", MacAddresses: []string{mac},
		Action: &fleetv1.CommandSpec_ProviderAction{ProviderAction: &fleetv1.ProviderAction{Action: action, Params: params,
			RegionRef: "default"}},
	}
}

func (r *rig) job(s *fleetv1.CommandSpec, hard context.Context) executor.Job {
	return executor.Job{
		Spec: s, Intent: r.intent, Hard: hard, StartedAt: time.Unix(1, 0), Progress: func(int, string) {},
		Logf: func(f string, a ...any) { slog.Debug("log", "text", f, "args", a) }, Output: func(string, []byte) {},
		UpdateIntent: func(_ context.Context, intent any) error {
			r.writes++
			raw, err := json.Marshal(intent)
			if err != nil {
				return err
			}
			r.intent = raw
			if r.written != nil {
				r.written(r.writes)
			}
			if r.writes == r.dieAt {
				return errDead
			}
			return nil
		},
	}
}

// prepare begins a command.
func (r *rig) prepare(s *fleetv1.CommandSpec) *executor.Result {
	r.t.Helper()
	intent, refused, err := r.exec.Prepare(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := json.Marshal(intent)
	if err != nil {
		r.t.Fatal(err)
	}
	r.intent = raw
	return refused
}

func (r *rig) execute(s *fleetv1.CommandSpec, limit time.Duration) (executor.Result, error) {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(r.t.Context())
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(executor.ErrTimeout) })
	defer timer.Stop()
	return r.exec.Execute(ctx, r.job(s, ctx))
}

// do runs a whole command.
func (r *rig) do(action string, params map[string]string) executor.Result {
	r.t.Helper()
	s := spec(action, params)
	if refused := r.prepare(s); refused != nil {
		return *refused
	}
	out, err := r.execute(s, 30*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// must runs a whole command that succeeds.
func (r *rig) must(action string, params map[string]string) map[string]string {
	r.t.Helper()
	out := r.do(action, params)
	if out.Outcome != fleetv1.CommandResult_SUCCEEDED || out.Evidence[evidence.ProviderSaid] == "" {
		r.t.Fatalf("%s: %v %v %q %v", action, out.Outcome, out.Reason, out.Message, out.Evidence)
	}
	return out.Evidence
}

func (r *rig) status() string {
	m, ok := r.region.ByMAC(mac)
	if !ok {
		return "absent"
	}
	row, _ := ms.Of(m.Status)
	return row.Name
}

// TestAWholeLife brings a machine in and out again, by every action that an onboarding and a decommission have, twice
// each: the second run makes no further request.
func TestAWholeLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	steps := []struct {
		action string
		params map[string]string
		status string
	}{
		{"check_region", nil, "absent"}, {"create", nil, "New"}, {"commission", nil, ""}, {"wait_ready", nil, "Ready"},
		{"set_storage_layout", map[string]string{"layout": "lvm"}, "Ready"}, {"fabric_interfaces", nil, "Ready"},
		{"boot_interface", nil, "Ready"}, {"render_user_data", nil, "Ready"},
		{"deploy", map[string]string{"image": "jammy"}, ""},
		{"wait_deployed", map[string]string{"settle": "true"}, "Deployed"}, {"classify_failure", nil, "Deployed"},
		{"recover_deploy", nil, "Deployed"}, {"hardware_sync", nil, "Deployed"}, {"wait_hardware_sync", nil, "Deployed"},
		{"power_query", nil, "Deployed"}, {"rescue_mode", nil, "Rescue mode"}, {"exit_rescue_mode", nil, "Deployed"},
		{"power_off", nil, "Deployed"}, {"power_on", nil, "Deployed"}, {"mark_broken", nil, "Broken"},
		{"mark_fixed", nil, "Deployed"},
		{"erase", nil, "Ready"}, {"release", nil, "Ready"}, {"abort", nil, "Ready"}, {"delete", nil, "absent"},
	}
	for _, s := range steps {
		first := r.must(s.action, s.params)
		if s.action == "erase" {
			if first[evidence.EraseMethod] != "maas-secure-erase-or-overwrite" {
				t.Errorf("erased by %v", first)
			}
			continue // a second erase erases again
		}
		changed := writesOf(r.region)
		r.must(s.action, s.params)
		if again := writesOf(r.region); again != changed {
			t.Errorf("%s was done twice", s.action)
		}
		if s.status != "" && r.status() != s.status {
			t.Errorf("after %s the machine is %s, want %s", s.action, r.status(), s.status)
		}
	}
	m := r.region.Requests("POST machines")[0].Form
	if m.Get("power_type") != "ipmi" || m.Get("power_parameters_power_pass") != "p" ||
		m.Get("architecture") != "amd64/generic" {
		t.Errorf("created with %v", m)
	}
	if f := r.region.Requests("POST deploy")[0].Form; f.Get("distro_series") != "jammy" || f.Get("user_data") == "" ||
		f.Get("enable_hw_sync") != "true" {
		t.Errorf("deployed with %v", f)
	}
}

func writesOf(r *maastest.Region) (n int) {
	for _, q := range r.Requests("") {
		if !strings.HasPrefix(q.Op, "GET") && q.Acted {
			n++
		}
	}
	return n
}

// deployed puts a machine into a status.
func (r *rig) add(m maastest.Machine) string {
	m.MACs = []string{mac}
	if m.BootMode == "" {
		m.BootMode = "auto"
	}
	if m.Annotations == nil && m.Status != ms.Ready && m.Status != ms.New {
		m.Annotations = map[string]string{"ingot-machine": "m-1", "ingot-operation": "op-0"}
	}
	return r.region.Add(m)
}

// TestFaultsOfOneRequest: whatever goes wrong with one request, the effect happens at most once, and the outcome is
// what MAAS shows, or unknown.
func TestFaultsOfOneRequest(t *testing.T) {
	t.Parallel()
	type want struct {
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
	}
	ok := want{outcome: fleetv1.CommandResult_SUCCEEDED}
	unknown := want{fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN}
	for _, c := range []struct {
		action, op string
		start      ms.Status
		kind       maastest.Kind
		want       want
	}{
		{"deploy", "POST deploy", ms.Ready, maastest.Busy, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.BusyAfter, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.Conflict, ok},
		{"erase", "POST release", ms.Deployed, maastest.BusyAfter, ok},
		{"erase", "POST release", ms.Deployed, maastest.Conflict, ok},
		{"commission", "POST commission", ms.New, maastest.BusyAfter, ok},
		{"delete", "DELETE machine", ms.Ready, maastest.BusyAfter, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.ErrorAfter, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.CutAfter, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.HangAfter, ok},
		{"deploy", "POST deploy", ms.Ready, maastest.ErrorBefore, unknown},
		{"deploy", "POST deploy", ms.Ready, maastest.CutBefore, unknown},
		{"deploy", "POST deploy", ms.Ready, maastest.HangBefore, unknown},
		{"deploy", "POST deploy", ms.Ready, maastest.Nonsense, unknown},
		{"deploy", "POST deploy", ms.Ready, maastest.Vanish,
			want{fleetv1.CommandResult_FAILED, baremetalv1.Reason_MAAS_MACHINE_GONE}},
		{"deploy", "GET machines", ms.Ready, maastest.Busy, ok},
		{"deploy", "GET machines", ms.Ready, maastest.CutBefore, ok},
		{"deploy", "GET machines", ms.Ready, maastest.Nonsense, ok},
		{"deploy", "GET machines", ms.Ready, maastest.HangBefore, ok},
		{"erase", "POST release", ms.Deployed, maastest.Busy, ok},
		{"erase", "POST release", ms.Deployed, maastest.CutAfter, ok},
		{"erase", "POST release", ms.Deployed, maastest.ErrorAfter, ok},
		{"erase", "POST release", ms.Deployed, maastest.HangAfter, ok},
		{"erase", "POST release", ms.Deployed, maastest.CutBefore, unknown},
		{"erase", "POST release", ms.Deployed, maastest.Vanish,
			want{fleetv1.CommandResult_FAILED, baremetalv1.Reason_MAAS_MACHINE_GONE}},
		{"release", "POST release", ms.Deployed, maastest.CutAfter, ok},
		{"release", "POST release", ms.Deployed, maastest.ErrorBefore, unknown},
		{"delete", "DELETE machine", ms.Ready, maastest.CutAfter, ok},
		{"delete", "DELETE machine", ms.Ready, maastest.CutBefore, unknown},
		{"delete", "DELETE machine", ms.Ready, maastest.Busy, ok},
		{"commission", "POST commission", ms.New, maastest.CutAfter, ok},
		{"commission", "POST commission", ms.New, maastest.CutBefore,
			want{fleetv1.CommandResult_FAILED, baremetalv1.Reason_MAAS_FAILED}},
	} {
		t.Run(c.action+"/"+c.op+"/"+string(c.kind), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if strings.HasPrefix(string(c.kind), "hang") {
				r.call = time.Second
			}
			r.add(maastest.Machine{Status: c.start})
			r.region.Fail(maastest.Fault{Op: c.op, Kind: c.kind})
			s := spec(c.action, nil)
			r.prepare(s)
			limit := 30 * time.Second
			if c.want != ok && c.kind != maastest.Conflict && c.kind != maastest.Vanish {
				limit = 3 * time.Second
			}
			out, err := r.execute(s, limit)
			if err != nil {
				t.Fatal(err)
			}
			if out.Outcome != c.want.outcome || out.Reason != c.want.reason {
				t.Errorf("%v %v %q, want %+v", out.Outcome, out.Reason, out.Message, c.want)
			}
			if n := r.region.Acted(c.op); n > 1 {
				t.Errorf("%s acted %d times", c.op, n)
			}
			if asked := len(r.region.Requests(c.op)); c.want == unknown && asked != 1 {
				t.Errorf("%s was asked %d times though nobody knew", c.op, asked)
			}
		})
	}
}

// TestTypedRefusals: the state that MAAS shows decides, and the reason names the remedy.
func TestTypedRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, action string
		m            maastest.Machine
		before       func(*rig)
		reason       baremetalv1.Reason
		retryable    bool
	}{
		{"deployed by somebody", "deploy", maastest.Machine{Status: ms.Deployed}, nil,
			baremetalv1.Reason_MAAS_STATUS_CONFLICT, false},
		{"allocated by somebody", "deploy", maastest.Machine{Status: ms.Allocated, Owner: "eve",
			Annotations: map[string]string{}}, nil, baremetalv1.Reason_MAAS_STATUS_CONFLICT, false},
		{"broken", "deploy", maastest.Machine{Status: ms.Broken}, nil, baremetalv1.Reason_MAAS_STATUS_CONFLICT, false},
		{"forgotten", "deploy", maastest.Machine{Status: ms.Ready}, func(r *rig) { r.region.Lose("sys001") },
			baremetalv1.Reason_MAAS_MACHINE_GONE, false},
		{"two of them", "deploy", maastest.Machine{Status: ms.Ready}, func(r *rig) { r.add(maastest.Machine{}) },
			baremetalv1.Reason_MAAS_MACHINE_AMBIGUOUS, false},
		{"another key", "deploy", maastest.Machine{Status: ms.Ready}, func(r *rig) { r.key = "a:b:c" },
			baremetalv1.Reason_MAAS_AUTH_FAILED, false},
		{"commissioning fails", "wait_ready", maastest.Machine{Status: ms.FailedCommissioning, StatusMessage: "no network"},
			nil, baremetalv1.Reason_MAAS_FAILED, true},
		{"no boot disk", "set_storage_layout", maastest.Machine{Status: ms.Ready, NoBootDisk: true}, nil,
			baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false},
		{"no boot interface", "boot_interface", maastest.Machine{Status: ms.Ready, NoBootNIC: true}, nil,
			baremetalv1.Reason_NO_BOOT_PATH, false},
		{"deployment failed", "wait_deployed", maastest.Machine{Status: ms.FailedDeployment, StatusMessage: "curtin"}, nil,
			baremetalv1.Reason_MAAS_FAILED, true},
		{"deployment gone", "wait_deployed", maastest.Machine{Status: ms.Ready}, nil, baremetalv1.Reason_MAAS_STATUS_CONFLICT,
			false},
		{"no disk to write", "classify_failure", maastest.Machine{Status: ms.FailedDeployment,
			StatusMessage: "no such boot disk"}, nil, baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false},
		{"erasing fails", "erase", maastest.Machine{Status: ms.Deployed, FailErase: []string{"drive locked"}}, nil,
			baremetalv1.Reason_MAAS_FAILED, true},
		{"erasing left out", "erase", maastest.Machine{Status: ms.Deployed, SkipErase: true}, nil,
			baremetalv1.Reason_MAAS_FAILED, false},
		{"locked", "release", maastest.Machine{Status: ms.Deployed, Locked: true}, nil,
			baremetalv1.Reason_MAAS_STATUS_CONFLICT, false},
		{"locked meanwhile", "release", maastest.Machine{Status: ms.Deployed}, func(r *rig) {
			r.region.Before("POST release", func() { r.region.Change("sys001", func(m *maastest.Machine) { m.Locked = true }) })
		}, baremetalv1.Reason_MAAS_REFUSED, false},
		{"deleted in use", "delete", maastest.Machine{Status: ms.Deployed}, nil, baremetalv1.Reason_MAAS_STATUS_CONFLICT,
			false},
		{"no way to switch", "power_off", maastest.Machine{Status: ms.Deployed, PowerType: "manual"}, nil,
			baremetalv1.Reason_MAAS_REFUSED, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.add(c.m)
			if c.before != nil {
				c.before(r)
			}
			out := r.do(c.action, nil)
			if out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != c.reason || out.Retryable != c.retryable ||
				out.Message == "" {
				t.Errorf("%v %v retryable %v: %q", out.Outcome, out.Reason, out.Retryable, out.Message)
			}
			if strings.Contains(out.Message, maastest.Secret) {
				t.Error("the key is in the message")
			}
		})
	}
}

// TestAnotherRecordIsNotTheMachine: a machine that comes back under a new record while a command runs is another one.
func TestAnotherRecordIsNotTheMachine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.add(maastest.Machine{Status: ms.Deploying, Stuck: true})
	s := spec("wait_deployed", nil)
	r.prepare(s)
	group, _ := task.New(t.Context())
	var out executor.Result
	group.Go("execute", func(context.Context) (err error) { out, err = r.execute(s, 30*time.Second); return err })
	testkit.Eventually(t, 5*time.Second, func() bool { return len(r.region.Requests("GET machines")) > 0 },
		"MAAS was not asked")
	r.region.Change(id, func(m *maastest.Machine) { m.MACs = nil })
	r.add(maastest.Machine{Status: ms.Deployed, Series: "noble"})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if out.Reason != baremetalv1.Reason_MAAS_MACHINE_GONE {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
}

// TestDatasourceRetry: a deployment that failed for want of its data source is made once more, and only once per
// command.
func TestDatasourceRetry(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]fleetv1.CommandResult_Outcome{1: fleetv1.CommandResult_SUCCEEDED,
		2: fleetv1.CommandResult_FAILED} {
		r := newRig(t)
		text := slices.Repeat([]string{"cloud-init: no datasource found"}, failures)
		r.add(maastest.Machine{Status: ms.Ready, FailDeploy: text})
		r.must("deploy", nil)
		if r.must("wait_deployed", map[string]string{"settle": "true"})["maas_deploy_outcome"] != "failed" {
			t.Error("the failed deployment is not the end of the wait")
		}
		if got := r.must("classify_failure", nil)["maas_deploy_failure"]; got != "datasource" {
			t.Errorf("class %q", got)
		}
		out := r.do("recover_deploy", nil)
		if again := out.Evidence[evidence.Redeployed]; (again == "true") != (failures == 1) ||
			failures == 2 && (out.Reason != baremetalv1.Reason_MAAS_FAILED ||
				!strings.HasPrefix(out.Message, "MAAS says Failed deployment")) {
			t.Errorf("%d failures: redeployed %q, %s %q", failures, again, out.Reason, out.Message)
		}
		if out.Outcome != want || r.region.Acted("POST deploy") != 2 || r.region.Acted("POST release") != 1 {
			t.Errorf("%d failures: %v %q after %d deployments", failures, out.Outcome, out.Message,
				r.region.Acted("POST deploy"))
		}
		if r.bundles != 2 {
			t.Errorf("%d identities for 2 deployments", r.bundles)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, change := range map[string]func(*fleetv1.CommandSpec){
		"CAPABILITY_MISSING": func(s *fleetv1.CommandSpec) { s.Provider = "agent" },
		"INVALID_FIELD":      func(s *fleetv1.CommandSpec) { s.GetProviderAction().Action = "explode" },
		"INVALID_FIELD 2":    func(s *fleetv1.CommandSpec) { s.GetProviderAction().Params = map[string]string{"x": "y"} },
		"INVALID_FIELD 3":    func(s *fleetv1.CommandSpec) { s.MacAddresses = nil },
	} {
		s := spec("deploy", nil)
		change(s)
		if out := r.prepare(s); out == nil || out.Outcome != fleetv1.CommandResult_REFUSED ||
			!strings.HasPrefix(name, out.Reason.String()) {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if len(r.region.Requests("")) != 0 {
		t.Error("MAAS was asked while the command was prepared")
	}
}
