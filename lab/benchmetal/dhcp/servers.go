package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
)

// server is one to be measured: its command, given a directory of its own.
type server struct {
	name    string
	command func(dir string) []string
}

const (
	serverDevice = "server0"
	clientDevice = "client0"
	serverIP     = "10.77.0.1"
	first, last  = "10.77.16.0", "10.77.239.255"
)

func servers() []server {
	ingot := func(onDisk bool) func(string) []string {
		return func(dir string) []string {
			if !onDisk {
				dir = ""
			}
			return []string{"/proc/self/exe", "-serve", serverDevice, "-store", dir}
		}
	}
	dnsmasq := func(more ...string) func(string) []string {
		return func(dir string) []string {
			return append([]string{
				"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file=",
				"--interface=" + serverDevice, "--bind-interfaces", "--dhcp-authoritative", "--no-ping", "--dhcp-lease-max=100000",
				"--quiet-dhcp", "--log-facility=/dev/null", "--dhcp-leasefile=" + filepath.Join(dir, "leases"),
				"--dhcp-range=" + first + "," + last + ",255.255.0.0,1h",
			}, more...)
		}
	}
	return []server{
		{"ingot, leases on the disk", ingot(true)},
		{"dnsmasq, leases on the disk", dnsmasq()},
		{"ingot, in memory", ingot(false)},
		{"dnsmasq, in memory", dnsmasq("--leasefile-ro")},
	}
}

// serve is the site agent's server with the agent's own database, in its namespace, until it is told to stop.
func serve(ctx context.Context, device, dir string) error {
	var store lease.Store = &lease.Memory{}
	if dir != "" {
		disk, err := state.Open(ctx, state.Config{Dir: dir})
		if err != nil {
			return err
		}
		defer func() { _ = disk.Close() }() // what counts was flushed when it was saved
		store = disk.Site()
	}
	s, err := dhcp.New(dhcp.Config{
		Segments: []segment.Segment{{
			Name: "bench", Interface: device, Address: netip.MustParsePrefix(serverIP + "/16"),
			PoolStart: netip.MustParseAddr(first), PoolEnd: netip.MustParseAddr(last), LeaseTime: time.Hour,
			Mode: segment.ModeDHCP, Discovery: segment.DiscoveryReport, HTTPPort: 80,
		}},
		Book: &segment.Table{}, Store: store, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := s.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// measure starts a server in a fresh namespace, loads it, and stops it.
func measure(ctx context.Context, o options, s server) (result, error) {
	dir, err := os.MkdirTemp("", "ingot-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	space, err := newNamespace(ctx)
	if err != nil {
		return result{}, err
	}
	defer space.remove()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	cmd := space.command(ctx, s.command(dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return result{}, fmt.Errorf("start %s: %w", s.name, err)
	}
	r, err := load(ctx, o)
	_ = cmd.Process.Signal(unix.SIGTERM) // it may have failed
	if ended := cmd.Wait(); err == nil && ended != nil && !strings.Contains(ended.Error(), "terminated") {
		err = ended
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name()) // it only explains err
		return result{}, fmt.Errorf("%w; the server said: %s", err, text)
	}
	r.name, r.cpu = s.name, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	return r, nil
}

// namespace is the network of the server. Its end of the cable is serverDevice, ours clientDevice.
type namespace struct {
	holder *exec.Cmd
	pid    string
}

func newNamespace(ctx context.Context) (*namespace, error) {
	holder := exec.CommandContext(ctx, "sleep", "600")
	holder.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := holder.Start(); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	n := &namespace{holder: holder, pid: strconv.Itoa(holder.Process.Pid)}
	for _, line := range []string{
		"ip link add " + clientDevice + " type veth peer name " + serverDevice + " netns " + n.pid,
		"ip link set " + clientDevice + " up",
		"nsenter -n -t " + n.pid + " ip link set lo up",
		"nsenter -n -t " + n.pid + " ip addr add " + serverIP + "/16 dev " + serverDevice,
		"nsenter -n -t " + n.pid + " ip link set " + serverDevice + " up",
	} {
		args := strings.Fields(line)
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			n.remove()
			return nil, fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return n, nil
}

func (n *namespace) command(ctx context.Context, args ...string) *exec.Cmd {
	if args[0] == "/proc/self/exe" {
		// nsenter must not be taken for it.
		if self, err := os.Executable(); err == nil {
			args[0] = self
		}
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-n", "-t", n.pid}, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd
}

// remove ends the namespace, and the cable with it.
func (n *namespace) remove() {
	_ = n.holder.Process.Kill() // it may have ended
	_ = n.holder.Wait()         // and was killed
	// The device of this side goes a moment later; the next of that name waits for it.
	_ = exec.CommandContext(context.Background(), "ip", "link", "del", clientDevice).Run() // it may be gone
}
