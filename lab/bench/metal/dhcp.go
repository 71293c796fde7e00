// Package metal measures what booting and writing machines costs, each beside what others do on the same machine.
package metal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/network"
)

const aboutDHCP = "Machines that get an address (DISCOVER, OFFER, REQUEST, ACK) from the site agent's DHCP server and " +
	"from dnsmasq, side by side on this machine: same cable, same load, same disk for the leases."

// The network: the load is in the namespace of the switch, and each server in one of its own.
const (
	serverDevice = "server0"
	clientDevice = "rack0"
	serverIP     = "10.77.0.1"
	clientIP     = "10.77.0.2"
	first, last  = "10.77.16.0", "10.77.239.255"
)

// DHCP loads both servers with so many machines at once, each with a MAC address that is new to the server. One that
// has its address makes room for the next. Both are measured twice: with leases on the disk before they are
// acknowledged, which is their default, and with leases in memory only.
func DHCP(f *flag.FlagSet, _ *rig.Config) func(context.Context, *report.Report) error {
	duration := f.Duration("duration", 5*time.Second, "how long each server is loaded")
	window := f.Int("machines", 128, "how many machines ask at once")
	return func(ctx context.Context, r *report.Report) error {
		if _, err := exec.LookPath("dnsmasq"); err != nil {
			return fmt.Errorf("find the server to compare with (Debian: dnsmasq-base): %w", err)
		}
		run := r.Run("dhcp", "DHCP", aboutDHCP)
		for _, c := range []struct {
			leases string
			disk   bool
			flags  []string
		}{{"leases on the disk", true, nil}, {"leases in memory", false, []string{"--leasefile-ro"}}} {
			ours, err := measureDHCP(ctx, *duration, *window, func(dir string) []string {
				if !c.disk {
					dir = ""
				}
				return []string{"/proc/self/exe", DHCPVerb, dir}
			})
			if err != nil {
				return fmt.Errorf("measure ingot, %s: %w", c.leases, err)
			}
			theirs, err := measureDHCP(ctx, *duration, *window, func(dir string) []string {
				return append([]string{
					"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file=",
					"--interface=" + serverDevice, "--bind-interfaces", "--dhcp-authoritative", "--no-ping", "--quiet-dhcp",
					"--dhcp-lease-max=100000", "--log-facility=/dev/null", "--dhcp-leasefile=" + filepath.Join(dir, "leases"),
					"--dhcp-range=" + first + "," + last + ",255.255.0.0,1h",
				}, c.flags...)
			})
			if err != nil {
				return fmt.Errorf("measure dnsmasq, %s: %w", c.leases, err)
			}
			run.Add("DHCP, "+c.leases, ours.rate, "/s", report.AtLeast(theirs.rate, "dnsmasq"), "%s", ours)
			run.Add("dnsmasq, "+c.leases, theirs.rate, "/s", nil, "%s", theirs)
		}
		return nil
	}
}

// DHCPVerb makes this program the server; ServeDHCP is what it runs then.
const DHCPVerb = "serve-dhcp"

// ServeDHCP runs the site agent's server until ctx ends. Leases are in the agent's own database in dir, or in memory
// for an empty dir.
func ServeDHCP(ctx context.Context, dir string) error {
	var store lease.Store = &lease.Memory{}
	if dir != "" {
		disk, err := state.Open(ctx, state.Config{Dir: dir})
		if err != nil {
			return err
		}
		defer func() { _ = disk.Close() }() // each lease was flushed when it was saved
		store = disk.Site()
	}
	s, err := dhcp.New(dhcp.Config{
		Segments: []segment.Segment{{
			Name: "bench", Interface: serverDevice, Address: netip.MustParsePrefix(serverIP + "/16"),
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

// served is the work of one server.
type served struct {
	measure.Latency
	rate              float64 // machines a second
	repeated, refused int
	cpu               time.Duration // of one machine
}

// String returns the sentence of the figure.
func (s served) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, %s of processor time for one; %d asked again, %d were refused",
		s.P50, s.P99, s.cpu.Round(time.Microsecond), s.repeated, s.refused)
}

// measureDHCP starts a server in a fresh network, loads it, and stops it.
func measureDHCP(
	ctx context.Context, length time.Duration, window int, command func(dir string) []string,
) (s served, err error) {
	dir, err := os.MkdirTemp("", "ingot-bench-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rack, err := network.New()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	host, err := network.New()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	sw, err := rack.Switch(clientDevice)
	if err != nil {
		return s, err
	}
	// The kernel drops answers to a card without an address: it knows no path back.
	if err := errors.Join(rack.Address(clientDevice, netip.MustParsePrefix(clientIP+"/16")),
		sw.Card(host, serverDevice, netip.MustParsePrefix(serverIP+"/16"))); err != nil {
		return s, err
	}
	args := command(dir)
	if args[0] == "/proc/self/exe" { // nsenter must not be taken for it
		if args[0], err = os.Executable(); err != nil {
			return s, err
		}
	}
	var said strings.Builder
	cmd := host.Command(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return s, err
	}
	s, err = loadDHCP(ctx, rack, length, window)
	_ = cmd.Process.Signal(unix.SIGTERM) // it may have failed
	if ended := cmd.Wait(); err == nil && ended != nil && !strings.Contains(ended.Error(), "terminated") {
		err = ended
	}
	if err != nil {
		return s, fmt.Errorf("%w; the server said: %s", err, said.String())
	}
	s.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(s.N)
	return s, nil
}
