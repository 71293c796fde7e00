// Package sitetest makes a network for each test: namespaces with cables between them, in which servers and the
// standard clients of a distribution meet. It needs root.
package sitetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/testkit"
)

const inside = "INGOT_TEST_IN_NETNS"

// InNamespace runs the calling test in a process with a network namespace of its own. It is true in that process; where
// it is false the test has been run and the caller returns. The test must not be a subtest.
func InNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		run(t, "ip link set lo up")
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run it as root, " +
			"or in `unshare -Urn`")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in its namespace: %v\n%s", err, out)
	}
	t.Logf("in its namespace:\n%s", out)
	return false
}

// Bridge makes a bridge in this namespace, with an address in the form 10.0.0.1/24. It is the device of the site agent.
func Bridge(t *testing.T, name, address string) {
	t.Helper()
	run(t, "ip link add "+name+" type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
	run(t, "ip addr add "+address+" dev "+name)
	run(t, "ip link set "+name+" up")
}

// Machine is another network namespace, with a device eth0 that is plugged into a bridge here.
type Machine struct {
	t   *testing.T
	pid string
}

// NewMachine makes one. Its device has the MAC address and is up; it has no address.
func NewMachine(t *testing.T, bridge, mac string) *Machine {
	t.Helper()
	// A process holds the namespace. It must not outlive the test.
	holder := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "120")
	holder.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill() // it may have ended
		_ = holder.Wait()         // and was killed
	})
	m := &Machine{t: t, pid: strconv.Itoa(holder.Process.Pid)}
	port := "port" + m.pid
	run(t, "ip link add "+port+" type veth peer name eth0 netns "+m.pid)
	run(t, "ip link set "+port+" master "+bridge+" up")
	m.Run("ip link set lo up")
	m.Run("ip link set eth0 address " + mac + " up")
	return m
}

// Run runs a command there, without a shell, and returns its output.
func (m *Machine) Run(line string) string {
	m.t.Helper()
	return run(m.t, "nsenter -n -t "+m.pid+" "+line)
}

// Try is Run for a command that may fail.
func (m *Machine) Try(ctx context.Context, line string) (string, error) {
	out, err := m.command(ctx, line).CombinedOutput()
	return string(out), err
}

func (m *Machine) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-n", "-t", m.pid}, strings.Fields(line)...)...)
	// nsenter executes the command in its own place, so that this reaches the command.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// Start runs a server there until the test ends. It returns a Stringer of its output so far.
func (m *Machine) Start(line string) fmt.Stringer {
	m.t.Helper()
	out := &testkit.Buffer{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	cmd := m.command(ctx, line)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return out
}

// Addresses returns the IPv4 addresses of eth0, with their prefix lengths.
func (m *Machine) Addresses() []string {
	m.t.Helper()
	var out []string
	fields := strings.Fields(m.Run("ip -4 -o addr show dev eth0"))
	for i, f := range fields {
		if f == "inet" && i+1 < len(fields) {
			out = append(out, fields[i+1])
		}
	}
	return out
}

func run(t *testing.T, line string) string {
	t.Helper()
	args := strings.Fields(line)
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// Plug adds one more device to the machine, without an address, at another bridge.
func (m *Machine) Plug(device, bridge string) {
	m.t.Helper()
	port := device + "p" + m.pid
	run(m.t, "ip link add "+port+" type veth peer name "+device+" netns "+m.pid)
	run(m.t, "ip link set "+port+" master "+bridge+" up")
	m.Run("ip link set " + device + " up")
}

// Plug makes a device in this namespace that is plugged into a bridge of this namespace.
func Plug(t *testing.T, device, bridge string) {
	t.Helper()
	run(t, "ip link add "+device+"p type veth peer name "+device)
	run(t, "ip link set "+device+"p master "+bridge+" up")
	run(t, "ip link set "+device+" up")
}

// Route adds a route in this namespace.
func Route(t *testing.T, to, via string) {
	t.Helper()
	run(t, "ip route add "+to+" via "+via)
}

// Remove removes a device of this namespace.
func Remove(t *testing.T, device string) {
	t.Helper()
	run(t, "ip link del "+device)
}
