// Package process runs programs under test: it starts them so that they end with this process at the latest, and can
// kill, stop and continue them.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config is the program to run.
type Config struct {
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Output takes standard output and standard error.
	Output io.Writer
}

// Process is a program that runs, or has run.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start runs it.
func Start(cfg Config) (*Process, error) {
	cmd := exec.Command(cfg.Path, cfg.Args...)
	cmd.Stdout, cmd.Stderr = cfg.Output, cfg.Output
	cmd.Env = append(os.Environ(), cfg.Env...)
	// A signal from the keyboard is for us: we stop them in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return run(cmd)
}

func run(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A killed parent takes its processes with it.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	task.Background("await "+filepath.Base(cmd.Path), func() {
		p.err = p.cmd.Wait()
		close(p.done)
	})
	return p, nil
}

// Path is the program's.
func (p *Process) Path() string { return p.cmd.Path }

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.done }

// Err is how it ended; nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal. A process that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", filepath.Base(p.cmd.Path), err)
	}
	return nil
}

// Kill sends SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Stop asks it to end, and kills it when it has not after the limit.
func (p *Process) Stop(limit time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-clock.Real().After(limit):
		return errors.Join(fmt.Errorf("%s does not end", filepath.Base(p.cmd.Path)), p.Kill())
	}
}

// Killed reports whether the process has ended by SIGKILL.
func (p *Process) Killed() bool {
	select {
	case <-p.done:
	default:
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
