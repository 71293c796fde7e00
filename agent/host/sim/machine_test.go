package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/internal/task"
)

func TestBootConsumesTheEntryAndLosesTheFirewall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	if _, err := h.SetBootNext(t.Context(), cause,
		boot.Target{Method: boot.PXE, MAC: "52:54:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	if err := h.ApplyFirewall(t.Context(), cause, somePolicy(1)); err != nil {
		t.Fatal(err)
	}
	if err := h.Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	st, err := f.world().State("m-1")
	if err != nil || st.BootNext.Set || st.BootedFrom != "pxe 52:54:00:00:00:01" || st.Firewall.Present {
		t.Errorf("after one boot: %+v, %v", st, err)
	}
	if err := f.host().Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	if st, err = f.world().State("m-1"); err != nil || st.BootedFrom != "disk" {
		t.Errorf("after two: %+v, %v", st, err)
	}
}

func TestRepaveReportsProgressAndGivesANewSystem(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	old, err := h.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seen []host.RepaveProgress
	req := host.RepaveRequest{Digest: digestA, Bytes: 1000, Nonce: "n"}
	ev, err := h.Repave(t.Context(), cause, req, func(p host.RepaveProgress) { seen = append(seen, p) })
	if err != nil || !ev.Simulated || ev.Image.Digest != digestA || ev.Image.Nonce != "n" {
		t.Fatalf("evidence %+v, %v", ev, err)
	}
	if last := seen[len(seen)-1]; last.Percent != 100 || last.Bytes != 1000 || seen[0].Stage != "zero" ||
		last.Stage != "verify" {
		t.Errorf("progress from %+v to %+v", seen[0], last)
	}
	if err := h.Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	now, err := f.host().Identity(t.Context())
	if err != nil || now.MachineID == old.MachineID || now.HardwareFingerprint != old.HardwareFingerprint {
		t.Errorf("system before %+v, after %+v, %v", old, now, err)
	}
}

func TestRepaveCutShortLeavesNoImage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.cfg.RepaveTime = time.Hour
	h := f.host()
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := task.New(t.Context())
	g.Go("cancel", func(ctx context.Context) error {
		defer cancel()
		return f.clock.BlockUntil(ctx, 1)
	})
	_, err := h.Repave(ctx, cause, host.RepaveRequest{Digest: digestA}, nil)
	if !errors.Is(err, context.Canceled) || g.Wait() != nil {
		t.Fatalf("Repave: %v", err)
	}
	if image, err := h.DiskImage(t.Context()); err != nil || image.Digest != "" || f.count() != 1 {
		t.Errorf("disk holds %+v, %v, %d effects", image, err, f.count())
	}
}

func TestRefusalsAreNotAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	for name, err := range map[string]error{
		"reboot":   h.Reboot(t.Context(), cause, "soon"),
		"hostname": h.SetHostname(t.Context(), cause, "no spaces please"),
		"firewall": h.ApplyFirewall(t.Context(), cause, firewall.Policy{}),
		"digest":   second(h.Repave(t.Context(), cause, host.RepaveRequest{Digest: "md5:1"}, nil)),
		"disk":     second(h.Repave(t.Context(), cause, host.RepaveRequest{Digest: digestA, DiskRule: "serial=other"}, nil)),
		"boot":     second(h.SetBootNext(t.Context(), cause, boot.Target{Method: "floppy"})),
	} {
		if !errors.Is(err, effect.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if records, err := ReadJournal(f.dir); err != nil || len(records) != 0 {
		t.Errorf("journal has %+v, %v", records, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPowerFromOutside(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h, m := f.host(), f.world().Machine("m-1")
	before := f.bootID()
	for _, on := range []bool{false, false, true, true} {
		if err := m.SetPower(t.Context(), cause, on); err != nil {
			t.Fatal(err)
		}
		if got, err := m.Power(t.Context()); err != nil || got != on {
			t.Fatalf("power %v, %v", got, err)
		}
		_, err := m.Identity(t.Context())
		if errors.Is(err, ErrDown) == on {
			t.Errorf("identity while on=%v: %v", on, err)
		}
		if _, err := New(f.cfg); errors.Is(err, ErrDown) == on {
			t.Errorf("an agent on a machine with on=%v: %v", on, err)
		}
	}
	if f.bootID() == before || f.count() != 2 {
		t.Errorf("boot id %s → %s, %d effects", before, f.bootID(), f.count())
	}
	if _, err := h.Identity(t.Context()); !errors.Is(err, ErrDown) {
		t.Errorf("the agent from before: %v", err)
	}
}

func TestRebootOfAMachineThatIsOffByThenIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.cfg.Delay = time.Second
	if err := f.host().Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	if err := f.world().Machine("m-1").SetPower(t.Context(), effect.Cause{CommandID: "off"}, false); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Second)
	if st, err := f.world().State("m-1"); err != nil || st.On || f.count() != 0 {
		t.Errorf("machine %+v, %v, %d effects", st, err, f.count())
	}
}

func TestInventorySaysThatItIsSimulated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	doc, err := h.Inventory(t.Context())
	if err != nil || !doc.Simulated || doc.System.Vendor != Vendor || len(doc.NICs) == 0 {
		t.Fatalf("%+v, %v", doc, err)
	}
	if err := h.Reboot(t.Context(), cause, boot.RebootGraceful); err != nil {
		t.Fatal(err)
	}
	again, err := f.host().Inventory(t.Context())
	if err != nil || again.Hash() != doc.Hash() || again.OS.BootID == doc.OS.BootID {
		t.Errorf("after a reboot: %+v, %v", again, err)
	}
}

func TestSettleAndForeignNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "reboot:late=1h")
	for _, id := range []string{"m-1", "rack/../7", "ü x"} {
		if err := f.world().Machine(id).Reboot(t.Context(), cause, boot.RebootForced); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(f.dir, "machines", "*.json")); err != nil || len(left) != 3 {
		t.Fatalf("state files %q, %v", left, err)
	}
	f.clock.Advance(time.Hour)
	if f.count() != 0 {
		t.Error("reading the journal made effects happen")
	}
	if err := f.world().Settle(); err != nil || f.count() != 3 {
		t.Errorf("%d effects, want 3; %v", f.count(), err)
	}
}

func TestBadWorlds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "reboot:maybe")
	if _, err := New(f.cfg); err == nil {
		t.Error("a bad script is accepted")
	}
	f.cfg.Script, f.cfg.MachineID = "", ""
	if _, err := New(f.cfg); !errors.Is(err, effect.ErrInvalid) {
		t.Errorf("no machine id: %v", err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, JournalName), []byte(`{"seq":1`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJournal(f.dir); err == nil {
		t.Error("a torn journal is read as if it were whole")
	}
}

func TestPollNoticesWhatOthersDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	f.cfg.Poll = time.Second
	h := f.host()
	if err := f.clock.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Second) // nothing has happened yet
	if err := f.clock.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := f.world().Machine("m-1").Reboot(t.Context(), cause, boot.RebootForced); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Down():
		t.Fatal("noticed before it looked")
	default:
	}
	f.clock.Advance(time.Second)
	<-h.Down()
}
