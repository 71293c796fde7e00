package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const networkdPIDFile = "/run/networkd.pid"

// supervise starts networkd again whenever it ends, as systemd does.
func supervise(t *testing.T) {
	t.Helper()
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // its end would be the end of what it has started
		for {
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/lib/systemd/systemd-networkd")
			cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
			if cmd.Start() != nil || os.WriteFile(networkdPIDFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600) != nil {
				return
			}
			_ = cmd.Wait() // however it ended
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		_ = unix.Kill(networkdPID(), unix.SIGKILL) // it may have ended
		<-ended
	})
	h := New(Config{})
	testkit.Eventually(t, rigTime, func() bool { return networkdRuns(t.Context(), h) }, "networkd is not on the bus")
}

func networkdPID() int {
	b, _ := os.ReadFile(networkdPIDFile) // none yet
	pid, _ := strconv.Atoi(string(b))    // 0: none
	if pid == 0 {
		return 1 << 30 // unused
	}
	return pid
}

// restartNetworkd returns when another one is on the bus.
func restartNetworkd(ctx context.Context, h *Linux) error {
	old := networkdPID()
	// The change may have it restarted just now.
	if err := unix.Kill(old, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop networkd: %w", err)
	}
	for range 600 {
		if networkdPID() != old && networkdRuns(ctx, h) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("networkd does not come back")
}

// run is one run's world.
type run struct {
	t      *testing.T
	seed   uint64
	rand   *rand.Rand
	host   *Linux
	bonds  bool   // the kernel has bonds and VLANs
	native bool   // no systemd: the kernel is configured by ourselves
	site   string // process in the other network
	began  time.Time
	change testChange
	said   strings.Builder // by what changes the network
}

// testChange is the order.
type testChange struct {
	Network  network.Config   `json:"network"`
	Firewall *firewall.Policy `json:"firewall,omitempty"`
	Before   *firewall.Policy `json:"before,omitempty"`
}

func networkRun(t *testing.T, seed uint64) {
	r := &run{t: t, seed: seed, began: time.Now(), bonds: os.Getenv(hosttest.VMVariable) == "1",
		rand: rand.New(rand.NewPCG(seed, 1))}
	if seed%rebootEvery == 0 {
		r.rebootRun()
		return
	}
	ownFiles(t, smallDisk(t))
	startBus(t)
	if r.native = r.rand.IntN(8) == 0; r.native {
		hosttest.Must(t, os.RemoveAll("/run/systemd/system")) // and so systemd is not init
	} else {
		supervise(t)
	}
	r.makeHost()
	r.layCables()
	r.tell("daemons run")
	r.begin()
	r.tell("begun")
	r.others()
	before, filesBefore := r.look(), r.files()
	if !r.reachable(r.ownAddresses()...) {
		t.Fatalf("the host is not reachable at the beginning:\n%s", before)
	}
	r.order()
	fault := r.fault()
	r.tell("fault " + fault.name)
	r.carryOut(fault)
	r.tell("change ended")
	if r.retry() && fault.holds {
		for range 2 { // networkd still has the files of the change, and is overruled each time
			if r.look() != before {
				r.retry()
			}
		}
		if now := r.look(); now != before {
			t.Errorf("the kernel is not as it was though the way back was gone:\n%s\n%s", diffText(before, now), r.said.String())
		}
	}
	fault.lift()
	for range 3 {
		if !r.retry() {
			break
		}
	}
	r.judge(before, filesBefore, fault)
}

func (r *run) tell(what string) { fmt.Printf("STORY %.0f s %s\n", time.Since(r.began).Seconds(), what) }

func (r *run) makeHost() {
	r.host, _ = unguarded(r.t)
	supervised(r.host)
}

// supervised has networkd restarted by supervise.
func supervised(h *Linux) {
	h.Kernel.Restart = func(ctx context.Context, _ string) error { return restartNetworkd(ctx, h) }
	h.Kernel.UnitState = func(context.Context, string) (string, error) {
		if _, err := os.Stat(networkdPIDFile); err != nil {
			return "inactive", nil
		}
		return "activating", nil
	}
}

// carryOut has another process change the network, and lets the fault strike.
func (r *run) carryOut(fault *runFault) {
	change := exec.CommandContext(context.WithoutCancel(r.t.Context()), os.Args[0], "-test.run=^TestNetworkChange$",
		"-test.v")
	change.Env = append(os.Environ(), "INGOT_NETWORK_CHANGE=1")
	change.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var said bytes.Buffer
	change.Stdout, change.Stderr = &said, &said
	hosttest.Must(r.t, change.Start())
	ended := make(chan struct{})
	go func() {
		_ = change.Wait() // it may have been killed
		close(ended)
	}()
	after := time.NewTimer(fault.at)
	select {
	case <-after.C:
		fault.strike(change.Process)
	case <-ended:
	}
	<-ended
	r.said.WriteString(said.String())
}

// retry does what the agent and systemd's timer do when the time is up. It reports whether there is something left to
// do.
func (r *run) retry() bool {
	g, err := r.host.Guarded(r.t.Context())
	hosttest.Must(r.t, err)
	if g == nil || g.State != rollback.GuardPending {
		return false
	}
	if !g.Due(r.host.BootID(), clock.Boottime()) {
		<-time.After(g.Deadline - clock.Boottime() + 10*time.Millisecond)
	}
	_, err = r.host.RollBackPending(r.t.Context(), false)
	fmt.Fprintf(&r.said, "try: %v\n", err)
	return err != nil
}

// TestNetworkChange is the process that carries the order out, in the steps of the executor of RECONFIGURE.
func TestNetworkChange(t *testing.T) {
	if os.Getenv("INGOT_NETWORK_CHANGE") != "1" {
		t.Skip("part of TestNetworkRuns")
	}
	h, _ := unguarded(t)
	supervised(h)
	var change testChange
	hosttest.Must(t, json.Unmarshal([]byte(hosttest.ReadFile(t, "/run/order.json")), &change))
	c := change.Network
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{
		CommandID: "c1", Deadline: clock.Boottime() + changeLimit, Network: &saved,
		SetsFirewall: change.Firewall != nil, Firewall: change.Before,
	}))
	if change.Firewall != nil {
		err = h.ApplyFirewall(t.Context(), effect.Cause{}, *change.Firewall)
	}
	if err == nil {
		err = h.ApplyNetwork(t.Context(), effect.Cause{}, c)
	}
	if err == nil {
		err = proves(t, h, c, &saved)
	}
	if err == nil {
		err = h.CommitGuard(t.Context(), "c1")
	}
	if err != nil {
		fmt.Println("rolling back:", err)
		fmt.Println("rolled back:", h.RollBackGuard(t.Context(), "c1"))
	}
}

func proves(t *testing.T, h *Linux, c network.Config, saved *network.SavedNetwork) error {
	t.Helper()
	s, err := h.Network(t.Context(), c, saved)
	if err != nil || s.Diff != "" {
		return fmt.Errorf("read back: %w: %s", errors.Join(err, effect.ErrReadBack), s.Diff)
	}
	from, err := h.NetworkSource(t.Context(), c, netip.MustParseAddr(controllerOfRuns))
	if err != nil {
		return err
	}
	for range 3 {
		err = exec.CommandContext(t.Context(), "/bin/busybox", "ping", "-c", "1", "-W", "1", "-I", from.String(),
			controllerOfRuns).Run()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("ping from %s: %w", from, err)
}
