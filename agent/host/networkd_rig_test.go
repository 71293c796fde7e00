package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network/networkd"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const (
	// rigTime is for daemons that start on an emulated machine, beside others.
	rigTime = time.Minute
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/>
  </policy>
</busconfig>
`

// withNetworkd runs the calling test again in its own network and file system, where a systemd-networkd and a bus of
// its own run. It returns true in there; the caller returns when it is false.
func withNetworkd(t *testing.T) bool {
	t.Helper()
	return withOwn(t, ownSystem)
}

// withOwn is withNetworkd for a system that prepare makes.
func withOwn(t *testing.T, prepare func(*testing.T)) bool {
	t.Helper()
	if os.Getenv(hosttest.NetworkdVariable) == "1" {
		prepare(t)
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it makes network and mount namespaces and runs a systemd-networkd in them")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), hosttest.NetworkdVariable+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS,
		Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a system of its own: %v\n%s", err, out)
	}
	return false
}

// ownSystem mounts what a system needs, so that nothing of the real one is changed, and starts bus and networkd.
func ownSystem(t *testing.T) {
	t.Helper()
	ownFiles(t, smallDisk(t))
	startBus(t)
	startNetworkd = func() (stop func()) { return daemon(t, "/lib/systemd/systemd-networkd") }
	stopNetworkd = startNetworkd()
	h := New(Config{})
	testkit.Eventually(t, rigTime, func() bool { return networkdRuns(t.Context(), h) }, "networkd is not on the bus")
}

// networkdRuns reports whether the test's own networkd is on the bus.
func networkdRuns(ctx context.Context, h *Linux) bool {
	return networkd.Manager{System: h.System}.Runs(ctx)
}

// smallDisk is a file system that can be full.
func smallDisk(t *testing.T) string {
	t.Helper()
	hosttest.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	dir := t.TempDir()
	hosttest.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=0755"))
	t.Cleanup(func() { hosttest.Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// ownFiles mounts all but the bus and what runs at it. etc becomes /etc, and keeps what it has.
func ownFiles(t *testing.T, etc string) {
	t.Helper()
	hosttest.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, keep := range []string{"passwd", "group", "nsswitch.conf", "machine-id", "ld.so.cache", "hosts", "hostname"} {
		b, err := os.ReadFile(filepath.Join("/etc", keep))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		hosttest.WriteFile(t, filepath.Join(etc, keep), string(b))
	}
	hosttest.Must(t, os.MkdirAll(filepath.Join(etc, "systemd/network"), 0o755))
	hosttest.Must(t, unix.Mount(etc, "/etc", "", unix.MS_BIND, ""))
	hosttest.Must(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"))
	if os.Getenv(hosttest.VMVariable) == "" { // a machine has its own already
		hosttest.Must(
			t,
			unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""),
		) // networkd then does not wait for udev
	}
	for _, dir := range []string{"/run/dbus", "/run/systemd/system"} {
		hosttest.Must(t, os.MkdirAll(dir, 0o755))
	}
	hosttest.Must(t, exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").Run())
}

func startBus(t *testing.T) {
	t.Helper()
	hosttest.WriteFile(t, "/run/bus.conf", busConfig)
	daemon(t, "dbus-daemon", "--nofork", "--config-file=/run/bus.conf")
	testkit.Eventually(t, rigTime, func() bool { _, err := os.Stat("/run/dbus/system_bus_socket"); return err == nil },
		"no bus")
}

// networkd of this process's own system.
var (
	startNetworkd func() (stop func())
	stopNetworkd  func()
)

// daemon runs a program until it is stopped or the test ends, and shows what it had to say if the test has failed.
func daemon(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=info", "SYSTEMD_LOG_TARGET=console")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	hosttest.Must(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		_ = cmd.Wait()                       // and was ordered to
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, out.String())
		}
	})
	return stop
}

// unguarded is the host with timers that are only noted.
func unguarded(t *testing.T) (h *Linux, armed *[]time.Duration) {
	t.Helper()
	h, armed = New(Config{}), &[]time.Duration{}
	h.Kernel.Arm = func(_ context.Context, after time.Duration) error {
		*armed = append(*armed, after)
		return nil
	}
	h.Kernel.Disarm = func(context.Context) error { return nil }
	h.Kernel.UnitState = func(context.Context, string) (string, error) { return "inactive", nil }
	h.Kernel.Restart = func(ctx context.Context, unit string) error {
		if unit != "systemd-networkd.service" {
			return errors.New("restart of " + unit)
		}
		stopNetworkd()
		stopNetworkd = startNetworkd()
		testkit.Eventually(t, rigTime, func() bool { return networkdRuns(ctx, h) }, "networkd is not on the bus again")
		return nil
	}
	return h, armed
}
