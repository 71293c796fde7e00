package metal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// process is a program that writes to a log file and ends with this process at the latest.
type process struct {
	name string
	log  string
	make func() *exec.Cmd

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// start begins the program. It may be called again once the program has ended.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer out.Close() // the program has its own copy
	p.cmd = p.make()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done, cmd := make(chan struct{}), p.cmd
	p.done = done
	task.Background(p.name, func() {
		p.err = cmd.Wait()
		close(done)
	})
	return nil
}

// kill ends it at once, and returns when it is gone.
func (p *process) kill() error { return p.signal(syscall.SIGKILL) }

const endLimit = 20 * time.Second

// end asks it to end, and kills it when it doesn't.
func (p *process) end() error {
	if p.done == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-clock.Real().After(endLimit):
		return errors.Join(fmt.Errorf("%s does not end; see %s", p.name, p.log), p.kill())
	}
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

const (
	pollEvery  = 20 * time.Millisecond
	startLimit = time.Minute
)

// await calls ok until it is true. It gives up after startLimit, and when the program ends.
func (p *process) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !ok() {
		if p.ended() {
			return fmt.Errorf("%s ended before %s: %w:\n%s", p.name, what, p.result(), tail(p.log))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; %s says:\n%s", what, ctx.Err(), p.name, tail(p.log))
		case <-clock.Real().After(pollEvery):
		}
	}
	return nil
}

func tail(path string) string {
	const limit = 2000
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}

// result is an error in any case: an end that nobody asked for is one.
func (p *process) result() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}
