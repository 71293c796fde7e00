package power_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/power"
	"github.com/ingot-metal/ingot/agent/executor/reboot"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// rig is a machine behind a BMC, and what an agent has stored of one command.
type rig struct {
	chassis *lab.Memory
	service *lab.Redfish
	host    host.Host
	intent  json.RawMessage
	// dieAt is the how manyth write of the intent is the last that the agent does; 0: it lives.
	dieAt, writes int
}

var errKilled = errors.New("killed")

func newRig(t *testing.T, on bool) *rig {
	t.Helper()
	r := &rig{chassis: &lab.Memory{Info: lab.About{Name: "m-1", UEFI: true}}}
	if on {
		if err := r.chassis.SetPower(t.Context(), lab.PowerOn); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.service, err = lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: r.chassis, Listen: "127.0.0.1:0", User: "u",
		Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.service.Close(); err != nil {
			t.Error(err)
		}
	})
	r.connect(t, "p")
	return r
}

func (r *rig) connect(t *testing.T, password string) {
	p := bmc.New(bmc.Config{
		Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) {
			return bmc.Credentials{Username: "u", Password: password, Allowed: []string{"127.0.0.0/8"}, PlainHTTP: true}, nil
		},
		Clock: clock.Real(), Log: testkit.Logger(t), SoftOff: 300 * time.Millisecond, Within: 1500 * time.Millisecond,
		Timeout: 2 * time.Second,
	})
	t.Cleanup(func() { p.Close(context.Background()) })
	r.host = provider.AsHost(p, provider.Target{MachineID: "m-1", BMCEndpoint: r.service.Endpoint()})
}

func (r *rig) job(t *testing.T, spec *fleetv1.CommandSpec) executor.Job {
	return executor.Job{
		Spec: spec, Intent: r.intent, Hard: t.Context(), Logf: t.Logf, Progress: func(int, string) {},
		UpdateIntent: func(_ context.Context, intent any) (err error) {
			if r.intent, err = json.Marshal(intent); err != nil {
				return err
			}
			if r.writes++; r.writes == r.dieAt {
				return errKilled
			}
			return nil
		},
	}
}

func (r *rig) prepare(t *testing.T, e executor.Executor, spec *fleetv1.CommandSpec) *executor.Result {
	t.Helper()
	intent, settled, err := e.Prepare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if settled != nil {
		return settled
	}
	if r.intent, err = json.Marshal(intent); err != nil {
		t.Fatal(err)
	}
	return nil
}

// do is a whole life of a command without a crash.
func (r *rig) do(t *testing.T, e executor.Executor, spec *fleetv1.CommandSpec) executor.Result {
	t.Helper()
	if settled := r.prepare(t, e, spec); settled != nil {
		return *settled
	}
	result, err := e.Execute(t.Context(), r.job(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func action(want, boot string, force bool) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		CommandId: "c-1", OperationId: "op-1", TargetId: "m-1",
		Action: &fleetv1.CommandSpec_Power{Power: &fleetv1.PowerAction{Want: want, BootOnce: boot, Force: force}},
	}
}

func rebootIn(mode string) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		CommandId: "c-1", OperationId: "op-1", TargetId: "m-1",
		Action: &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{Mode: mode}},
	}
}

func (r *rig) executor(spec *fleetv1.CommandSpec) executor.Executor {
	if spec.GetReboot() != nil {
		return reboot.New(reboot.Config{Host: r.host, Clock: clock.Real()})
	}
	return power.New(r.host, clock.Real())
}

func is(
	t *testing.T, what string, got executor.Result, outcome fleetv1.CommandResult_Outcome, reason baremetalv1.Reason,
) {
	t.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		t.Errorf("%s: %v %v (%s), want %v %v", what, got.Outcome, got.Reason, got.Message, outcome, reason)
	}
}

const (
	soft, off, on = lab.SoftOff, lab.ForceOff, lab.PowerOn
	succeeded     = fleetv1.CommandResult_SUCCEEDED
	failed        = fleetv1.CommandResult_FAILED
	refused       = fleetv1.CommandResult_REFUSED
)

func TestOrders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec     *fleetv1.CommandSpec
		startsOn bool
		stubborn bool
		switched []lab.Switch
		booted   []lab.Boot // after the start
		forced   string
	}{
		"cycle": {action("cycle", "", false), true, false, []lab.Switch{soft, on}, []lab.Boot{""}, "false"},
		"cycle from PXE": {action("cycle", "PXE", false), true, false, []lab.Switch{soft, on}, []lab.Boot{"pxe"},
			"false"},
		"cycle by force": {action("cycle", "DISK", true), true, false, []lab.Switch{off, on}, []lab.Boot{"disk"},
			"true"},
		"cycle, stubborn": {action("cycle", "HTTP", false), true, true, []lab.Switch{soft, off, on},
			[]lab.Boot{"http"}, "true"},
		"cycle of one that is of": {action("cycle", "PXE", false), false, false, []lab.Switch{on}, []lab.Boot{"pxe"},
			"false"},
		"off":               {action("off", "", true), true, false, []lab.Switch{off}, nil, "true"},
		"off when off":      {action("off", "", true), false, false, nil, nil, "false"},
		"on":                {action("on", "PXE", false), false, false, []lab.Switch{on}, []lab.Boot{"pxe"}, ""},
		"on when on":        {action("on", "", false), true, false, nil, nil, ""},
		"reboot":            {rebootIn("graceful"), true, false, []lab.Switch{soft, on}, []lab.Boot{""}, "false"},
		"reboot by default": {rebootIn(""), true, true, []lab.Switch{soft, off, on}, []lab.Boot{""}, "true"},
		"reboot by force":   {rebootIn("force"), true, false, []lab.Switch{off, on}, []lab.Boot{""}, "true"},
		"reboot by BMC":     {rebootIn("bmc"), true, false, []lab.Switch{off, on}, []lab.Boot{""}, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.startsOn)
			r.chassis.Stubborn = tc.stubborn
			switches, boots := len(r.chassis.Switched()), len(r.chassis.Booted())
			got := r.do(t, r.executor(tc.spec), tc.spec)
			is(t, "result", got, succeeded, 0)
			if s := r.chassis.Switched()[switches:]; !slices.Equal(s, tc.switched) {
				t.Errorf("switched %q, want %q", s, tc.switched)
			}
			if b := r.chassis.Booted()[boots:]; !slices.Equal(b, tc.booted) {
				t.Errorf("booted %q, want %q", b, tc.booted)
			}
			if left, err := r.chassis.BootOnce(t.Context()); err != nil || left != lab.BootNone {
				t.Errorf("a boot device was left: %q, %v", left, err)
			}
			ev := got.Evidence
			if ev[evidence.PowerOffForced] != tc.forced || ev[evidence.BMCProtocol] != "redfish" {
				t.Errorf("evidence %v", ev)
			}
			want := tc.spec.GetPower().GetWant()
			for key, wanted := range map[string]bool{evidence.PowerOffSeenAt: want != "on",
				evidence.PowerOnSeenAt: want != "off"} {
				if _, err := time.Parse(time.RFC3339Nano, ev[key]); (err == nil) != wanted {
					t.Errorf("evidence %s is %q", key, ev[key])
				}
			}
		})
	}
}

// Killed after each write of the intent, and going on: it is off once and on once, whatever the point.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]*fleetv1.CommandSpec{"power": action("cycle", "PXE", true),
		"reboot": rebootIn("force")} {
		for at := 1; at <= 4; at++ {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, true)
				r.dieAt = at
				e := r.executor(spec)
				if settled := r.prepare(t, e, spec); settled != nil {
					t.Fatal(settled)
				}
				before := len(r.chassis.Switched())
				if _, err := e.Execute(t.Context(), r.job(t, spec)); !errors.Is(err, errKilled) {
					t.Fatalf("killed at write %d: %v", at, err)
				}
				got := r.goOn(t, spec)
				is(t, "after the restart", got, succeeded, 0)
				if s := r.chassis.Switched()[before:]; !slices.Equal(s, []lab.Switch{off, on}) {
					t.Errorf("killed at write %d: switched %q", at, s)
				}
				if got.Evidence[evidence.PowerOffSeenAt] == "" || got.Evidence[evidence.PowerOnSeenAt] == "" {
					t.Errorf("evidence %v", got.Evidence)
				}
			})
		}
	}
}

// goOn is a new process: Resume, and Execute where Resume asks for it.
func (r *rig) goOn(t *testing.T, spec *fleetv1.CommandSpec) executor.Result {
	t.Helper()
	r.connect(t, "p")
	e := r.executor(spec)
	before := len(r.chassis.Switched())
	verdict, err := e.Resume(t.Context(), r.job(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.chassis.Switched()) != before {
		t.Error("Resume has switched")
	}
	if verdict.Settled != nil {
		return *verdict.Settled
	}
	result, err := e.Execute(t.Context(), r.job(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// Killed between the machine's coming on and the note of it: it is not switched again, and not told to boot from the
// network once more.
func TestKilledAfterTheLastSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	spec := action("cycle", "PXE", true)
	r.dieAt = 2 // it was seen off
	e := r.executor(spec)
	r.prepare(t, e, spec)
	if _, err := e.Execute(t.Context(), r.job(t, spec)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if err := r.chassis.SetPower(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	before := len(r.chassis.Switched())
	got := r.goOn(t, spec)
	is(t, "after the restart", got, succeeded, 0)
	if !strings.HasPrefix(got.Evidence[evidence.PowerByOthers], "on at ") {
		t.Errorf("evidence %v", got.Evidence)
	}
	// The same with an agent that was granted to go on before the machine came on.
	result, err := r.executor(spec).Execute(t.Context(), r.job(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	is(t, "executed again", result, succeeded, 0)
	left, err := r.chassis.BootOnce(t.Context())
	if err != nil || left != lab.BootNone || len(r.chassis.Switched()) != before {
		t.Errorf("boot device %q, %v; switched %q", left, err, r.chassis.Switched()[before:])
	}
}

// Another actor switches the machine on during the pause of a power cycle. The executor reports it and switches nothing
// back.
func TestSomebodyElseAtThePowerButton(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]*fleetv1.CommandSpec{"power": action("cycle", "PXE", true),
		"reboot": rebootIn("force")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			e := r.executor(spec)
			if settled := r.prepare(t, e, spec); settled != nil {
				t.Fatal(settled)
			}
			job := r.job(t, spec)
			update, before := job.UpdateIntent, len(r.chassis.Switched())
			job.UpdateIntent = func(ctx context.Context, intent any) error {
				err := update(ctx, intent)
				if r.writes == 2 { // it was seen off
					err = errors.Join(err, r.chassis.SetPower(ctx, on))
				}
				return err
			}
			got, err := e.Execute(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			is(t, "result", got, succeeded, 0)
			said := got.Evidence[evidence.PowerByOthers]
			if s := r.chassis.Switched()[before:]; !slices.Equal(s, []lab.Switch{off, on}) ||
				!strings.HasPrefix(said, "on at ") || strings.Contains(said, ",") {
				t.Errorf("switched %q, others %q", s, said)
			}
		})
	}
	for name, spec := range map[string]*fleetv1.CommandSpec{"cycle": action("cycle", "", true),
		"on when on": action("on", "", false), "off": action("off", "", false)} {
		r := newRig(t, true)
		if got := r.do(t, r.executor(spec), spec); got.Evidence[evidence.PowerByOthers] != "" {
			t.Errorf("%s accuses somebody: %v", name, got.Evidence)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec      *fleetv1.CommandSpec
		break_    func(t *testing.T, r *rig)
		outcome   fleetv1.CommandResult_Outcome
		reason    baremetalv1.Reason
		retryable bool
		evidence  string
	}{
		"wrong password": {
			action("cycle", "PXE", true), func(t *testing.T, r *rig) { r.connect(t, "wrong") },
			failed, baremetalv1.Reason_BMC_AUTH_FAILED, false, "",
		},
		"silent": {
			action("off", "", true), func(_ *testing.T, r *rig) { r.service.Misbehave(lab.Faults{Silent: true}) },
			failed, baremetalv1.Reason_BMC_UNREACHABLE, true, "",
		},
		"liar about power": {
			rebootIn("force"), func(_ *testing.T, r *rig) { r.service.Misbehave(lab.Faults{Liar: true}) },
			failed, baremetalv1.Reason_BMC_NO_EFFECT, true, bmc.EvidencePowerRead,
		},
		"liar about the boot device": {
			action("cycle", "PXE", true), func(_ *testing.T, r *rig) { r.service.Misbehave(lab.Faults{Liar: true}) },
			failed, baremetalv1.Reason_BMC_NO_EFFECT, true, bmc.EvidenceBootRead,
		},
		"HTTP boot of a BIOS": {
			action("cycle", "HTTP", true), func(_ *testing.T, r *rig) { r.chassis.Info.UEFI = false },
			failed, baremetalv1.Reason_NETBOOT_UNSUPPORTED, false, "",
		},
		"no such power":  {action("reset", "", true), nil, refused, baremetalv1.Reason_INVALID_FIELD, false, ""},
		"no such device": {action("on", "FLOPPY", true), nil, refused, baremetalv1.Reason_INVALID_FIELD, false, ""},
		"no such mode":   {rebootIn("warm"), nil, refused, baremetalv1.Reason_INVALID_FIELD, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			if tc.break_ != nil {
				tc.break_(t, r)
			}
			before := len(r.chassis.Switched())
			got := r.do(t, r.executor(tc.spec), tc.spec)
			is(t, "result", got, tc.outcome, tc.reason)
			if _, ok := got.Evidence[tc.evidence]; got.Retryable != tc.retryable || ok != (tc.evidence != "") {
				t.Errorf("retryable %v, evidence %v", got.Retryable, got.Evidence)
			}
			if n := len(r.chassis.Switched()); n != before {
				t.Errorf("the machine was switched: %q", r.chassis.Switched()[before:])
			}
		})
	}
}

func TestCancelBeforeIsInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	spec := action("cycle", "PXE", true)
	e := r.executor(spec)
	r.prepare(t, e, spec)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCanceled)
	got, err := e.Execute(ctx, r.job(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	is(t, "result", got, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
	if n := len(r.chassis.Switched()); n != 1 {
		t.Errorf("switched %q", r.chassis.Switched())
	}
}

func TestAgentStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.service.Misbehave(lab.Faults{Liar: true})
	spec := rebootIn("force")
	e := r.executor(spec)
	r.prepare(t, e, spec)
	job := r.job(t, spec)
	hard, stop := context.WithCancelCause(t.Context())
	job.Hard = hard
	job.Logf = func(string, ...any) { stop(executor.ErrShutdown) }
	if _, err := e.Execute(hard, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Fatalf("stopped: %v", err)
	}
	r.service.Misbehave(lab.Faults{})
	is(t, "after the restart", r.goOn(t, spec), succeeded, 0)
}

// A machine of the fake provider can be switched too; its reboot still needs another boot id.
func TestFakeMachines(t *testing.T) {
	t.Parallel()
	p, err := fake.New(fake.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{host: provider.AsHost(p, provider.Target{MachineID: "m-1"})}
	before, err := r.host.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec := action("cycle", "PXE", false)
	is(t, "cycle", r.do(t, r.executor(spec), spec), succeeded, 0)
	after, err := r.host.Identity(t.Context())
	if err != nil || after.BootID == before.BootID {
		t.Errorf("boot id %s, then %s, %v", before.BootID, after.BootID, err)
	}
	spec = rebootIn("force")
	got := r.do(t, r.executor(spec), spec)
	is(t, "reboot", got, succeeded, 0)
	if got.Evidence[evidence.BootIDBefore] != after.BootID || got.Evidence[evidence.PowerOffSeenAt] != "" {
		t.Errorf("evidence %v", got.Evidence)
	}
}

func TestOwnMachineIsNotSwitched(t *testing.T) {
	t.Parallel()
	w, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.Host("m-1", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	r := &rig{host: own}
	spec := action("cycle", "", true)
	is(t, "cycle", r.do(t, r.executor(spec), spec), refused, baremetalv1.Reason_CAPABILITY_MISSING)
	spec = rebootIn("bmc")
	is(t, "reboot by BMC", r.do(t, r.executor(spec), spec), refused, baremetalv1.Reason_CAPABILITY_MISSING)
}

// TestTheBootDevice: one that was set by others is left alone, and one that is ordered waits for the next boot.
func TestTheBootDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	if err := r.chassis.SetBootOnce(t.Context(), lab.BootPXE); err != nil {
		t.Fatal(err)
	}
	booted := len(r.chassis.Booted())
	spec := action("cycle", "", true)
	is(t, "cycle", r.do(t, r.executor(spec), spec), succeeded, 0)
	if b := r.chassis.Booted()[booted:]; !slices.Equal(b, []lab.Boot{lab.BootPXE}) {
		t.Errorf("booted from %q", b)
	}
	spec = action("on", "DISK", false)
	got := r.do(t, r.executor(spec), spec)
	is(t, "on when on", got, succeeded, 0)
	if left, err := r.chassis.BootOnce(t.Context()); err != nil || left != lab.BootDisk ||
		got.Evidence[evidence.BootNext] == "" {
		t.Errorf("the next boot is from %q, %v; evidence %v", left, err, got.Evidence)
	}
}

// TestACancelAfterTheFirstSwitchIsNone: an agent that has asked the machine to go off does not call that canceled.
func TestACancelAfterTheFirstSwitchIsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	spec := action("cycle", "", true)
	r.dieAt = 1
	e := r.executor(spec)
	r.prepare(t, e, spec)
	if _, err := e.Execute(t.Context(), r.job(t, spec)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCanceled)
	if got, err := e.Execute(ctx, r.job(t, spec)); !errors.Is(err, executor.ErrCanceled) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestKilledAfterItWasSeenOff: an order to switch off is done, and nothing is switched again.
func TestKilledAfterItWasSeenOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	spec := action("off", "", true)
	r.dieAt = 2
	e := r.executor(spec)
	r.prepare(t, e, spec)
	if _, err := e.Execute(t.Context(), r.job(t, spec)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	switched := len(r.chassis.Switched())
	is(t, "after the restart", r.goOn(t, spec), succeeded, 0)
	if len(r.chassis.Switched()) != switched {
		t.Errorf("switched %q", r.chassis.Switched()[switched:])
	}
	r.intent = r.intent[:len(r.intent)-1]
	if got, err := e.Execute(t.Context(), r.job(t, spec)); err == nil {
		t.Errorf("half an intent: %+v", got)
	}
	if v, err := e.Resume(t.Context(), r.job(t, spec)); err == nil {
		t.Errorf("half an intent: %+v", v)
	}
}

// TestKilledAtEachEffect switches a machine off: the executor of a reboot switches it in the same way.
func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, power.Declaration, func(t *testing.T) executortest.World {
		r := newRig(t, true)
		spec := action("off", "", true)
		return executortest.World{
			Spec: spec, Executor: func() executor.Executor { return r.executor(spec) },
			Effects: func() int { return len(r.chassis.Switched()) - 1 }, // it was switched on before
		}
	})
}
