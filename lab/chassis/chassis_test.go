package chassis_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	if err := network.BecomeRoot(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// rack is one chassis on a switch without other hosts.
func rack(t *testing.T, fw vm.Firmware, change func(*chassis.Config)) *chassis.Chassis {
	t.Helper()
	ns, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	sw, err := ns.Switch("sw0")
	if err != nil {
		t.Fatal(err)
	}
	if err := sw.Tap("tap0"); err != nil {
		t.Fatal(err)
	}
	cfg := chassis.Config{
		Name: "m1", Dir: testkit.TempDir(t), Firmware: fw, Tap: "tap0", Launcher: ns.Prefix(),
		Disks: []chassis.Disk{{Serial: "d0", Bytes: 64 << 20}},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := chassis.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
		if said, err := c.SerialLog(); t.Failed() {
			t.Logf("serial log (%v):\n%s", err, said)
		}
	})
	return c
}

func set(t *testing.T, c *chassis.Chassis, s bmc.Switch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.SetPower(ctx, s); err != nil {
		t.Fatal(err)
	}
}

func once(t *testing.T, c *chassis.Chassis, b bmc.Boot) {
	t.Helper()
	if err := c.SetBootOnce(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// first waits for the device that a boot tries first.
func first(t *testing.T, c *chassis.Chassis, from int) (device string) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		said, err := c.SerialLog()
		if err != nil {
			t.Fatal(err)
		}
		at := len(said)
		for _, d := range devices {
			if i := bytes.Index(said[from:at], []byte(d)); i >= 0 {
				device, at = d, from+i
			}
		}
		return device != ""
	}, "firmware boots nothing")
	return device
}

const (
	biosDisk, biosNet = "Booting from Hard Disk", "Booting from ROM"
	uefiPXE, uefiHTTP = "Start PXE over IPv4", "Start HTTP Boot over IPv4"
)

var devices = []string{biosDisk, biosNet, uefiPXE, uefiHTTP}

// TestBootOnceServesOneBoot: also when it is chosen while the machine runs, and although a BIOS resets twice.
func TestBootOnceServesOneBoot(t *testing.T) {
	t.Parallel()
	c := rack(t, vm.BIOS, nil)
	once(t, c, bmc.BootPXE)
	set(t, c, bmc.PowerOn)
	if b, err := c.BootOnce(t.Context()); b != bmc.BootNone || err != nil {
		t.Errorf("a power-on leaves %q (%v)", b, err)
	}
	boot := func(from int, want string) {
		t.Helper()
		if got := first(t, c, from); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	boot(0, biosNet)
	boot(reset(t, c), biosDisk)
	testkit.Eventually(t, patience, c.Settled, "firmware keeps resetting")
	once(t, c, bmc.BootPXE)
	boot(reset(t, c), biosNet)
	boot(reset(t, c), biosDisk)
	if n, err := c.Resets(); n != 3 || err != nil {
		t.Errorf("%d resets (%v), want 3", n, err)
	}
}

// reset lets the boot before settle, and returns the place in the log at which the next one begins.
func reset(t *testing.T, c *chassis.Chassis) int {
	t.Helper()
	testkit.Eventually(t, patience, c.Settled, "firmware keeps resetting")
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	return logged(t, c)
}

func logged(t *testing.T, c *chassis.Chassis) int {
	t.Helper()
	said, err := c.SerialLog()
	if err != nil {
		t.Fatal(err)
	}
	return len(said)
}

func TestUEFIBootsByPXEAndHTTP(t *testing.T) {
	t.Parallel()
	c := rack(t, vm.UEFI, nil)
	once(t, c, bmc.BootPXE)
	set(t, c, bmc.PowerOn)
	if got := first(t, c, 0); got != uefiPXE {
		t.Errorf("PXE: %s", got)
	}
	set(t, c, bmc.ForceOff)
	end := logged(t, c)
	once(t, c, bmc.BootHTTP)
	set(t, c, bmc.PowerOn)
	if got := first(t, c, end); got != uefiHTTP {
		t.Errorf("HTTP: %s", got)
	}
}

func TestPowerIsIdempotent(t *testing.T) {
	t.Parallel()
	c := rack(t, vm.BIOS, func(cfg *chassis.Config) { cfg.NetworkFirst = true })
	state := func(want bmc.Power) {
		t.Helper()
		if got, err := c.PowerState(t.Context()); got != want || err != nil {
			t.Errorf("power is %s (%v), want %s", got, err, want)
		}
	}
	state(bmc.Off)
	set(t, c, bmc.ForceOff)
	set(t, c, bmc.SoftOff)
	if err := c.Reset(t.Context()); err == nil {
		t.Error("a machine that is off was reset")
	}
	for range 2 {
		set(t, c, bmc.PowerOn)
		state(bmc.On)
	}
	if got := first(t, c, 0); got != biosNet {
		t.Errorf("a machine that is to boot from the network first tries %s", got)
	}
	if err := c.SetDisks(); err == nil {
		t.Error("disks were changed under power")
	}
	set(t, c, bmc.ForceOff)
	set(t, c, bmc.ForceOff)
	state(bmc.Off)
	set(t, c, bmc.PowerOn)
	if err := c.PullPlug(); err != nil {
		t.Error(err)
	}
	state(bmc.Off)
	if n := c.PowerOns(); n != 2 {
		t.Errorf("%d power-ons, want 2", n)
	}
	for _, b := range []bmc.Boot{bmc.BootMedia, bmc.BootHTTP} {
		if err := c.SetBootOnce(t.Context(), b); err == nil {
			t.Errorf("a BIOS machine without media takes %q", b)
		}
	}
}

// TestSerialLastsOverPowerCycles: one listener hears two boots, and leaves.
func TestSerialLastsOverPowerCycles(t *testing.T) {
	t.Parallel()
	c := rack(t, vm.BIOS, nil)
	line, err := c.Serial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		set(t, c, bmc.PowerOn)
		heard := ""
		for buf := make([]byte, 512); !strings.Contains(heard, biosDisk); {
			n, err := line.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			heard += string(buf[:n])
		}
		at, err := c.WaitSaid(t.Context(), biosDisk, began)
		if err != nil || at.Before(began) || at.After(time.Now()) {
			t.Errorf("said at %v, %v", at, err)
		}
		set(t, c, bmc.ForceOff)
	}
	if _, err := io.WriteString(line, "typed at a machine that is off"); err != nil {
		t.Error(err)
	}
	if err := line.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(line); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
