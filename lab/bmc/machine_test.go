package bmc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

// A whole computer in QEMU behind both of its BMCs, as a site agent drives it: cycled over Redfish, then over IPMI,
// while its serial port is captured.
func TestWholeMachine(t *testing.T) {
	t.Parallel()
	c := newMachine(t)
	r, sim := startRedfish(t, c), startIPMI(t, c)
	p := bmc.New(bmc.Config{
		Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) {
			return bmc.Credentials{Username: user, Password: password, Version: 1, Allowed: []string{"127.0.0.0/8"},
				PlainHTTP: true}, nil
		},
		Clock: clock.Real(), Log: testkit.Logger(t), SoftOff: 2 * time.Second,
	})
	t.Cleanup(func() { p.Close(context.Background()) })
	target := func(endpoint string) provider.Target { return provider.Target{MachineID: "m1", BMCEndpoint: endpoint} }
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var text strings.Builder
	group, _ := task.New(ctx)
	group.Go("console", func(ctx context.Context) error {
		return p.Console(ctx, target(sim.Endpoint()), func(line string) {
			mu.Lock()
			defer mu.Unlock()
			text.WriteString(line + "\n")
		})
	})
	for i, endpoint := range []string{r.Endpoint(), sim.Endpoint()} {
		e := effect.Cause{CommandID: "c", MachineID: "m1"}
		if _, err := p.SetBootDevice(t.Context(), target(endpoint), e, provider.BootPXE); err != nil {
			t.Fatal(err)
		}
		var cycle provider.Cycle
		keep := func(provider.Cycle) error { return nil }
		if err := p.TurnOff(t.Context(), target(endpoint), e, true, &cycle, keep); err != nil {
			t.Fatal(err)
		}
		if err := p.TurnOn(t.Context(), target(endpoint), e, &cycle, keep); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: off to on in %v, forced %v", cycle.Protocol, cycle.OnSeenAt.Sub(cycle.OffSeenAt), cycle.Forced)
		testkit.Eventually(t, 2*time.Minute, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(text.String(), "SeaBIOS (version") >= i+1
		}, "the firmware was not heard over %s", cycle.Protocol)
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// newMachine has BIOS firmware, a disk with nothing on it, and a network without other hosts.
func newMachine(t *testing.T) *chassis.Chassis {
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
	c, err := chassis.New(chassis.Config{
		Name: "m1", Dir: testkit.TempDir(t), Firmware: vm.BIOS, Tap: "tap0", Launcher: ns.Prefix(), CardROM: true,
		Disks: []chassis.Disk{{Serial: "d0", Bytes: 64 << 20}},
	})
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
	})
	return c
}
