package netboot_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/netboot"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// rig is a machine behind a BMC, the executor for it, and the intent that an agent has stored.
type rig struct {
	chassis  *lab.Memory
	service  *lab.Redfish
	provider *bmc.Provider
	target   provider.Target
	executor *netboot.Executor
	intent   json.RawMessage
	log      strings.Builder
}

func newRig(t *testing.T, shape lab.Shape) *rig {
	t.Helper()
	r := &rig{chassis: &lab.Memory{Info: lab.About{Name: "m-1", UEFI: true}}}
	if err := r.chassis.SetPower(t.Context(), lab.PowerOn); err != nil {
		t.Fatal(err)
	}
	var err error
	r.service, err = lab.StartRedfish(t.Context(), lab.RedfishConfig{
		Chassis: r.chassis, Listen: "127.0.0.1:0", User: "u", Password: "p", Shape: shape,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.service.Close(); err != nil {
			t.Error(err)
		}
	})
	r.provider = bmc.New(bmc.Config{
		Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) {
			return bmc.Credentials{Username: "u", Password: "p", Allowed: []string{"127.0.0.0/8"}}, nil
		},
		Clock: clock.Real(), Log: testkit.Logger(t), Within: 1500 * time.Millisecond, Timeout: 5 * time.Second,
	})
	t.Cleanup(func() { r.provider.Close(context.Background()) })
	r.target = provider.Target{MachineID: "m-1", BMCEndpoint: r.service.Endpoint()}
	r.executor = netboot.New(provider.AsHost(r.provider, r.target))
	return r
}

func spec(mode string) *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		CommandId: "c-1", OperationId: "op-1", TargetId: "m-1",
		Action: &fleetv1.CommandSpec_Netboot{Netboot: &fleetv1.NetbootAction{Mode: mode}},
	}
}

// prepare stores the intent as an agent does before it starts.
func (r *rig) prepare(t *testing.T, mode string) {
	t.Helper()
	intent, settled, err := r.executor.Prepare(t.Context(), spec(mode))
	if err != nil || settled != nil {
		t.Fatalf("prepare: %+v, %v", settled, err)
	}
	if r.intent, err = json.Marshal(intent); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) job(t *testing.T, mode string) executor.Job {
	return executor.Job{
		Spec: spec(mode), Intent: r.intent, Hard: t.Context(), Progress: func(int, string) {},
		Logf: func(format string, args ...any) { r.log.WriteString(format + "\n"); t.Logf(format, args...) },
	}
}

func (r *rig) execute(t *testing.T, mode string) executor.Result {
	t.Helper()
	result, err := r.executor.Execute(t.Context(), r.job(t, mode))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// reset switches the machine off and on, and returns what it then boots from.
func (r *rig) reset(t *testing.T) lab.Boot {
	t.Helper()
	for _, want := range []provider.PowerState{provider.PowerOff, provider.PowerOn} {
		if err := r.provider.SetPower(t.Context(), r.target, executor.EffectOf(spec("")), want); err != nil {
			t.Fatal(err)
		}
	}
	booted := r.chassis.Booted()
	return booted[len(booted)-1]
}

// What the next reset applies is accepted as it was ordered, and the evidence claims no more than that. The proof is
// the machine's own boot.
func TestOverrideThatTheResetApplies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shape lab.Shape
		entry string
		said  string
	}{
		"in effect at once":            {lab.Shape{}, "once", "read back"},
		"pending in a settings object": {lab.IDRAC10, "pending", "read back"},
		"kept for every boot":          {lab.SushyTools, "continuous", "for every boot"},
		"answered with 202":            {lab.Asynchronous, "ordered", "not to be read before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.shape)
			r.prepare(t, "PXE")
			got := r.execute(t, "PXE")
			if got.Outcome != fleetv1.CommandResult_SUCCEEDED || got.Evidence["boot_next_entry"] != tc.entry ||
				got.Evidence[evidence.BootNext] != "pxe" {
				t.Fatalf("%v %s, evidence %v", got.Outcome, got.Message, got.Evidence)
			}
			if !strings.Contains(r.log.String(), tc.said) {
				t.Errorf("the log says %q", r.log.String())
			}
			if booted := r.reset(t); booted != lab.BootPXE {
				t.Errorf("the machine boots from %q", booted)
			}
			if booted := r.reset(t); (booted == lab.BootNone) == tc.shape.Continuous {
				t.Errorf("the boot after the next is from %q", booted)
			}
		})
	}
}

// A command that a crash interrupts is settled by what the BMC shows, or goes on where it shows nothing.
func TestInterruptedOverride(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shape lab.Shape
		done  bool // the order was sent before the crash
		goOn  bool
	}{
		"pending, before the order":  {lab.IDRAC10, false, true},
		"pending, after the order":   {lab.IDRAC10, true, false},
		"ordered, after the order":   {lab.Asynchronous, true, true}, // nothing shows it: it is ordered again
		"in effect, after the order": {lab.Shape{}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.shape)
			r.prepare(t, "PXE")
			if tc.done {
				r.execute(t, "PXE")
			}
			v, err := r.executor.Resume(t.Context(), r.job(t, "PXE"))
			if err != nil || v.GoOn != tc.goOn {
				t.Fatalf("%+v, %v", v, err)
			}
			if tc.goOn {
				r.execute(t, "PXE")
			}
			if booted := r.reset(t); booted != lab.BootPXE {
				t.Errorf("the machine boots from %q", booted)
			}
		})
	}
}

// A BMC that accepts an override, and shows and does nothing, is found out.
func TestOverrideThatHasNoEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Shape{})
	r.prepare(t, "PXE")
	r.service.Misbehave(lab.Faults{Liar: true})
	if got := r.execute(t, "PXE"); got.Outcome != fleetv1.CommandResult_FAILED || got.Reason.String() != "BMC_NO_EFFECT" {
		t.Errorf("%v %v %s", got.Outcome, got.Reason, got.Message)
	}
}

// An override of before is taken back where the machine is to boot from its disk.
func TestOverrideIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]lab.Shape{"plain": {}, "pending": lab.IDRAC10, "iLO": lab.ILO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shape)
			for _, mode := range []string{"HTTP", "DISK"} {
				r.prepare(t, mode)
				if got := r.execute(t, mode); got.Outcome != fleetv1.CommandResult_SUCCEEDED {
					t.Fatalf("%s: %v %s", mode, got.Outcome, got.Message)
				}
			}
			if booted := r.reset(t); booted != lab.BootNone {
				t.Errorf("the machine boots from %q", booted)
			}
		})
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, netboot.Declaration, func(t *testing.T) executortest.World {
		dir := t.TempDir()
		h, err := sim.New(sim.Config{Dir: dir, MachineID: "m-1", NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() }) // nothing is owed to it
		return executortest.World{
			Spec: spec("PXE"), Executor: func() executor.Executor { return netboot.New(h) },
			Effects: func() int { return simEffects(t, dir, sim.KindBootNext) },
		}
	})
}

func simEffects(t *testing.T, dir string, kind sim.Kind) (n int) {
	t.Helper()
	records, err := sim.ReadJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range sim.CountByCommand(records, kind) {
		n += of
	}
	return n
}
