package pid1

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// verb is what becomes of the machine or the child.
type verb int

const (
	restart verb = iota
	powerOff
	reboot
	kexec
)

// Supervise runs fn in a child process of process 1; doc.go has the consequences of its end. In process 1 it returns
// only when the machine could be neither switched off nor rebooted. In the child, and anywhere else, it is just fn.
func Supervise(fn func() error) error {
	if os.Getpid() != 1 {
		return fn()
	}
	s := supervisor{
		sys:      &System{stateDir: StateDir},
		requests: make(chan verb, 1),
		clock:    clock.Real(),
		start:    startChild,
	}
	task.Background("signals", s.watchSignals)
	task.Background("power-button", s.watchPowerButton)
	task.Background("guard", s.watchGuard)
	for {
		if want := s.next(); want != restart {
			return s.end(want)
		}
	}
}

// next is one life of the child, and the delay after it if it is to have another.
func (s *supervisor) next() verb {
	want := s.life()
	if want != restart {
		return want
	}
	select {
	case want = <-s.requests:
		return want
	case <-s.clock.After(restartDelay):
		return restart
	}
}

type supervisor struct {
	sys      *System
	requests chan verb
	clock    clock.Clock
	start    func() (*child, error)
}

// child is the process that does the real work.
type child struct {
	pid  int
	done <-chan unix.WaitStatus
}

// life starts the child, waits for its end, and returns the next action.
func (s *supervisor) life() verb {
	c, err := s.start()
	if err != nil {
		slog.Error("cannot start the agent process", "error", err)
		return restart
	}
	select {
	case status := <-c.done:
		next := afterExit(status)
		slog.Warn("agent process ended", "status", describe(status), "restart", next == restart)
		return next
	case want := <-s.requests:
		s.stop(c)
		return want
	}
}

// afterExit: a clean end is meant; all else is an accident.
func afterExit(status unix.WaitStatus) verb {
	if status.Exited() && status.ExitStatus() == 0 {
		return powerOff
	}
	return restart
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}

func (s *supervisor) stop(c *child) {
	if err := unix.Kill(c.pid, unix.SIGTERM); err != nil {
		slog.Warn("cannot ask the agent process to end", "error", err)
		return
	}
	select {
	case <-c.done:
	case <-s.clock.After(stopGrace):
		slog.Warn("agent process does not end; going on without it")
	}
}

func (s *supervisor) end(want verb) error {
	switch want {
	case reboot:
		return s.sys.Reboot()
	case kexec:
		return s.sys.Kexec()
	default:
		return s.sys.PowerOff()
	}
}

// startChild starts this program again and reaps whatever process 1 inherits until that child has ended.
func startChild() (*child, error) {
	env := append(os.Environ(), childEnv+"=1")
	p, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env: env, Dir: "/", Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return nil, fmt.Errorf("start agent process: %w", err)
	}
	done := make(chan unix.WaitStatus, 1)
	task.Background("reaper", func() { done <- reapUntil(p.Pid, unix.Wait4) })
	return &child{pid: p.Pid, done: done}, nil
}

type wait4 func(pid int, status *unix.WaitStatus, options int, rusage *unix.Rusage) (int, error)

// reapUntil collects every process that ends until pid is among them. ECHILD means that another wait has collected it;
// then its end counts as a failure.
func reapUntil(pid int, wait wait4) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		got, err := wait(-1, &status, 0, nil)
		switch {
		case err == nil && got == pid:
			return status
		case err != nil && !errors.Is(err, unix.EINTR):
			slog.Error("cannot wait for the agent process", "error", err)
			return unix.WaitStatus(0xff00)
		}
	}
}

// watchSignals turns what would end process 1, and so panic the kernel, into requests.
func (s *supervisor) watchSignals() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1)
	for got := range signals {
		switch got {
		case unix.SIGTERM:
			s.request(powerOff)
		case unix.SIGINT: // what the kernel sends for Ctrl-Alt-Del, and the child for a reboot
			s.request(reboot)
		case unix.SIGUSR1:
			s.request(kexec)
		}
	}
}

func (s *supervisor) watchPowerButton() {
	err := waitForPowerButton(context.Background())
	if err != nil {
		slog.Debug("no power button", "error", err)
		return
	}
	s.request(powerOff)
}

// request drops what comes after the first: the machine is on its way already.
func (s *supervisor) request(v verb) {
	select {
	case s.requests <- v:
	default:
	}
}
