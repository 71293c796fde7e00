package sim

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/internal/clock"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type fixture struct {
	*testing.T
	dir   string
	clock *clock.Fake
	cfg   Config
}

func newFixture(t *testing.T, script string) fixture {
	f := fixture{T: t, dir: t.TempDir(), clock: clock.NewFake(start)}
	f.cfg = Config{Dir: f.dir, MachineID: "m-1", Script: script, Clock: f.clock, Crash: func() {}}
	return f
}

func (f fixture) host() *Host {
	f.Helper()
	h, err := New(f.cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = h.Close() })
	return h
}

func (f fixture) world() *World {
	f.Helper()
	w, err := OpenWorld(WorldConfig{Dir: f.dir, Clock: f.clock, Script: f.cfg.Script, Crash: f.cfg.Crash})
	if err != nil {
		f.Fatal(err)
	}
	return w
}

func (f fixture) bootID() string {
	f.Helper()
	st, err := f.world().State("m-1")
	if err != nil {
		f.Fatal(err)
	}
	return st.BootID
}

// count is how often command c had an effect.
func (f fixture) count() int {
	f.Helper()
	records, err := ReadJournal(f.dir)
	if err != nil {
		f.Fatal(err)
	}
	return CountByCommand(records)["c"]
}

var cause = effect.Cause{CommandID: "c", OperationID: "o", MachineID: "m-1", Attempt: 1}

const digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func somePolicy(generation uint64) firewall.Policy {
	return firewall.Policy{Generation: generation, InputDefault: firewall.VerdictAccept,
		Controllers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1")}}
}

// kinds are all effects that a host can be asked for, how to ask, and whether it has happened.
var kinds = map[Kind]struct {
	prepare func(context.Context, *Host) error
	ask     func(context.Context, *Host) error
	done    func(before, now MachineState) bool
}{
	KindReboot: {
		ask:  func(ctx context.Context, h *Host) error { return h.Reboot(ctx, cause, boot.RebootGraceful) },
		done: func(before, now MachineState) bool { return before.BootID != now.BootID },
	},
	KindBootNext: {
		ask: func(ctx context.Context, h *Host) error {
			_, err := h.SetBootNext(ctx, cause, boot.Target{Method: boot.PXE})
			return err
		},
		done: func(_, now MachineState) bool { return now.BootNext.Set },
	},
	KindBootNextClear: {
		prepare: func(ctx context.Context, h *Host) error {
			_, err := h.SetBootNext(ctx, effect.Cause{CommandID: "p"}, boot.Target{Method: boot.PXE})
			return err
		},
		ask:  func(ctx context.Context, h *Host) error { return h.ClearBootNext(ctx, cause) },
		done: func(_, now MachineState) bool { return !now.BootNext.Set },
	},
	KindHostname: {
		ask:  func(ctx context.Context, h *Host) error { return h.SetHostname(ctx, cause, "new") },
		done: func(_, now MachineState) bool { return now.Hostname == "new" },
	},
	KindFirewall: {
		ask:  func(ctx context.Context, h *Host) error { return h.ApplyFirewall(ctx, cause, somePolicy(7)) },
		done: func(_, now MachineState) bool { return now.Firewall.Holds(somePolicy(7)) },
	},
	KindFirewallRemove: {
		prepare: func(ctx context.Context, h *Host) error {
			return h.ApplyFirewall(ctx, effect.Cause{CommandID: "p"}, somePolicy(7))
		},
		ask:  func(ctx context.Context, h *Host) error { return h.RemoveFirewall(ctx, cause) },
		done: func(_, now MachineState) bool { return !now.Firewall.Present },
	},
	KindRepave: {
		ask: func(ctx context.Context, h *Host) error {
			_, err := h.Repave(ctx, cause, host.RepaveRequest{Digest: digestA}, nil)
			return err
		},
		done: func(_, now MachineState) bool { return now.Disk.Digest == digestA },
	},
	KindPowerOff: {
		ask:  func(ctx context.Context, h *Host) error { return h.SetPower(ctx, cause, false) },
		done: func(_, now MachineState) bool { return !now.On },
	},
}

func TestEveryFaultOfEveryKind(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		for _, tc := range []struct {
			mode    string
			asked   bool // an error is answered
			effects int
			later   bool // only after the time of late
		}{
			{"", false, 1, false},
			{"fail-before", true, 0, false},
			{"fail-after", true, 1, false},
			{"crash-before", true, 0, false},
			{"crash-after", true, 1, false},
			{"late=5s", false, 1, true},
			{"never", false, 0, false},
			{"lie", false, 0, false},
		} {
			t.Run(string(kind)+":"+tc.mode, func(t *testing.T) {
				t.Parallel()
				script := string(kind) + ":" + tc.mode
				if tc.mode == "" {
					script = ""
				}
				f := newFixture(t, script)
				h := f.host()
				if k.prepare != nil {
					if err := k.prepare(t.Context(), h); err != nil {
						t.Fatal(err)
					}
				}
				before, err := f.world().State("m-1")
				if err != nil {
					t.Fatal(err)
				}
				err = ask(t, k.ask, h, kind == KindRepave && tc.mode == "never")
				if (err != nil) != tc.asked || (tc.asked && !errors.Is(err, ErrInjected)) {
					t.Errorf("answered %v, want an error: %v", err, tc.asked)
				}
				if tc.later {
					f.check(before, k.done, 0)
					f.clock.Advance(5 * time.Second)
				}
				f.check(before, k.done, tc.effects)
			})
		}
	}
}

// ask calls for the effect. A repave that never ends is cut off, which is the only answer it has.
func ask(t *testing.T, fn func(context.Context, *Host) error, h *Host, endless bool) error {
	t.Helper()
	if !endless {
		return fn(t.Context(), h)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := fn(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a repave that never ends answered %v", err)
	}
	return nil
}

func (f fixture) check(before MachineState, done func(before, now MachineState) bool, effects int) {
	f.Helper()
	now, err := f.world().State("m-1")
	if err != nil {
		f.Fatal(err)
	}
	if done(before, now) != (effects > 0) {
		f.Errorf("done: %v, want %v; machine %+v", done(before, now), effects > 0, now)
	}
	if got := f.count(); got != effects {
		f.Errorf("journal counts %d effects, want %d", got, effects)
	}
}

func TestFaultsCountAcrossProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "hostname:fail-before@2")
	for i, fails := range []bool{false, true, false} {
		h := f.host() // a new one each time, as after a restart of the agent
		err := h.SetHostname(t.Context(), cause, strings.Repeat("n", i+1))
		if (err != nil) != fails {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if f.count() != 2 {
		t.Errorf("%d effects, want 2", f.count())
	}
}

func TestTheSameAgainIsNoEffect(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	for range 2 {
		if err := h.SetHostname(t.Context(), cause, "new"); err != nil {
			t.Fatal(err)
		}
		if err := h.ApplyFirewall(t.Context(), cause, somePolicy(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.SetBootNext(t.Context(), cause, boot.Target{Method: boot.PXE}); err != nil {
			t.Fatal(err)
		}
	}
	if f.count() != 3 {
		t.Errorf("%d effects, want 3", f.count())
	}
}

func TestRebootTakesItsTimeAndTellsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	var told atomic.Int32
	f.cfg.Delay, f.cfg.Rebooted = time.Minute, func() { told.Add(1) }
	h := f.host()
	before := f.bootID()
	if err := h.Reboot(t.Context(), cause, boot.RebootForced); err != nil {
		t.Fatal(err)
	}
	if id, err := h.Identity(t.Context()); err != nil || id.BootID != before || f.count() != 0 {
		t.Fatalf("while going down: %+v, %v, %d effects", id, err, f.count())
	}
	if err := f.clock.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Minute)
	<-h.Down()
	if after := f.bootID(); after == before || f.count() != 1 {
		t.Errorf("boot id %s → %s, %d effects", before, after, f.count())
	}
	if _, err := h.Identity(t.Context()); !errors.Is(err, ErrDown) {
		t.Errorf("a process from before the reboot: %v", err)
	}
	if err := h.SetHostname(t.Context(), cause, "ghost"); !errors.Is(err, ErrDown) || f.count() != 1 {
		t.Errorf("a process from before the reboot changed something: %v", err)
	}
	if id, err := f.host().Identity(t.Context()); err != nil || id.BootID != f.bootID() || !id.Simulated {
		t.Errorf("after: %+v, %v", id, err)
	}
	if !eventually(func() bool { return told.Load() == 1 }) {
		t.Errorf("told %d times", told.Load())
	}
}

// eventually waits for a goroutine that sends no other signal.
func eventually(ok func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func TestLyingRebootRestartsTheAgentOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "reboot:lie")
	h := f.host()
	before := f.bootID()
	if err := h.Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	<-h.Down()
	id, err := f.host().Identity(t.Context())
	if err != nil || id.BootID != before {
		t.Errorf("after the lie: %+v, %v, boot id before %s", id, err, before)
	}
}

func TestLyingClaims(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "bootnext:lie,repave:lie,power-off:lie")
	h, m := f.host(), f.world().Machine("m-1")
	change, err := h.SetBootNext(t.Context(), cause, boot.Target{Method: boot.PXE})
	if err != nil || !change.New.Set {
		t.Errorf("boot entry is not claimed: %+v, %v", change, err)
	}
	if s, err := h.BootNext(t.Context()); err != nil || s.Set {
		t.Errorf("boot entry reads back as set: %+v, %v", s, err)
	}
	ev, err := h.Repave(t.Context(), cause, host.RepaveRequest{Digest: digestA}, nil)
	if err != nil || ev.Image.Digest != digestA {
		t.Errorf("repave is not claimed: %+v, %v", ev, err)
	}
	if image, err := h.DiskImage(t.Context()); err != nil || image.Digest != "" {
		t.Errorf("disk reads back as written: %+v, %v", image, err)
	}
	if err := m.SetPower(t.Context(), cause, false); err != nil {
		t.Fatal(err)
	}
	if on, err := m.Power(t.Context()); err != nil || on {
		t.Errorf("power shows on: %v, %v", on, err)
	}
	if _, err := h.Identity(t.Context()); err != nil {
		t.Errorf("a machine whose BMC only claims to have switched it off: %v", err)
	}
}
