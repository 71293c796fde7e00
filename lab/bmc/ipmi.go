package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// IPMIConfig is what an IPMI service needs.
type IPMIConfig struct {
	Chassis Chassis
	// Dir is the simulator's own directory; it must exist and its path must be short enough for a unix socket in it.
	Dir string
	// Addr is the UDP address to answer on. Port 0 takes a free one.
	Addr     netip.AddrPort
	User     string
	Password string
	// FailedSupply is a power supply, PSU2, that reports a failure.
	FailedSupply bool
	// Emulation replaces what the simulator reads of its controllers, sensors and records (ipmi_sim_cmd(5)); empty means
	// one controller with one sensor.
	Emulation string
	// Helper is a command line (a program and its arguments) that calls ChassisControl with the arguments after its
	// own. Empty means a script in perl; where there is none, this program with the argument "chassis-control".
	Helper []string
	// Wrap is put before the simulator's command line, such as "ip netns exec <name>".
	Wrap []string
	// Console is a TCP listener where the simulator finds the serial port; it is closed with the service. Nil means one
	// on this process' loopback, which a simulator in another network namespace does not reach.
	Console net.Listener
}

// IPMI is a running ipmi_sim: RMCP+ with cipher suite 3 (it has no other that is worth its name), power, boot device,
// identify light, and serial over LAN.
type IPMI struct {
	cfg     IPMIConfig
	cmd     *exec.Cmd
	control *control
	console *console
	group   *task.Group
	stop    context.CancelFunc
	exited  chan struct{}
	err     error // valid once exited is closed
}

const (
	simBinary   = "ipmi_sim"
	readyWithin = 10 * time.Second
)

// StartIPMI returns when the service answers. Close must be called.
func StartIPMI(ctx context.Context, cfg IPMIConfig) (*IPMI, error) {
	if cfg.Addr.Port() == 0 {
		port, err := freePort(ctx, cfg.Addr.Addr())
		if err != nil {
			return nil, fmt.Errorf("find a port for IPMI: %w", err)
		}
		cfg.Addr = netip.AddrPortFrom(cfg.Addr.Addr(), port)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &IPMI{cfg: cfg, stop: stop, exited: make(chan struct{})}
	s.group, ctx = task.New(ctx)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start IPMI service: %w", err), s.Close())
	}
	return s, nil
}

func (s *IPMI) start(ctx context.Context) (err error) {
	if s.control, err = serveControl(ctx, s.group, s.cfg.Chassis, s.path("chassis.sock")); err != nil {
		return err
	}
	if s.console, err = serveConsole(ctx, s.group, s.cfg.Chassis, s.cfg.Console); err != nil {
		return err
	}
	if err := s.writeFiles(); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

func (s *IPMI) launch(ctx context.Context) error {
	out, err := os.Create(s.path("ipmi_sim.log"))
	if err != nil {
		return err
	}
	defer out.Close() // the simulator has its own copy
	args := append(append([]string(nil), s.cfg.Wrap...), simBinary,
		"-c", s.path("lan.conf"), "-f", s.path("bmc.emu"), "-s", s.path("state"), "-n")
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	// A test binary that is killed must not leave simulators behind.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("run ipmi_sim (of the package openipmi): %w", err)
	}
	s.group.Go("ipmi_sim", func(context.Context) error {
		s.err = s.cmd.Wait()
		close(s.exited)
		return nil
	})
	return nil
}

// awaitReady pings until there is an answer (RMCP presence, ASF 2.0, 3.2.4).
func (s *IPMI) awaitReady(ctx context.Context) error {
	if len(s.cfg.Wrap) > 0 {
		return nil // it may be where we have no way to
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", s.cfg.Addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 64)
	for give := time.Now().Add(readyWithin); time.Now().Before(give); {
		if _, err := conn.Write([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 1, 0, 0}); err == nil {
			if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				return err
			}
			if n, err := conn.Read(answer); err == nil && n >= 12 {
				return nil
			}
		}
		select {
		case <-s.exited:
			return s.said(fmt.Errorf("it ended: %w", s.err))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return s.said(errors.New("it does not answer"))
}

func (s *IPMI) said(err error) error {
	text, readErr := os.ReadFile(s.path("ipmi_sim.log"))
	if readErr != nil || len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w: it says: %s", err, text)
}

func (s *IPMI) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// Addr is host:port, UDP.
func (s *IPMI) Addr() string { return s.cfg.Addr.String() }

// Endpoint is the address as a machine's BMC endpoint.
func (s *IPMI) Endpoint() string { return "ipmi://" + s.Addr() }

// Lie makes it accept every change and do nothing, or stops that.
func (s *IPMI) Lie(lie bool) { s.control.lie.Store(lie) }

// Freeze stops the simulator where it stands, so that nothing answers; Thaw lets it go on.
func (s *IPMI) Freeze() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *IPMI) Thaw() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Close stops everything. It may be called once.
func (s *IPMI) Close() error {
	s.stop()
	if s.control != nil {
		s.control.close()
	}
	if s.console != nil {
		s.console.close()
	} else if s.cfg.Console != nil {
		s.cfg.Console.Close()
	}
	return s.group.Wait()
}

// freePort asks the system for one. Another program may take it before it is used; then the start fails.
func freePort(ctx context.Context, addr netip.Addr) (uint16, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return 0, err
	}
	bound, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err := errors.Join(err, conn.Close()); err != nil {
		return 0, err
	}
	return bound.Port(), nil
}
