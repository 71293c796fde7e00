package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/measure"
)

// process is a child with its log.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     *os.File
	started time.Time
	ended   chan struct{}
	err     error // valid after ended is closed
}

// stopTimeout is how long a child may take to end in peace.
const stopTimeout = 20 * time.Second

func startProcess(dir, name, path string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(path, args...), log: log, started: time.Now(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A signal from the keyboard is for us: we stop the children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	task.Background("await "+name, func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	})
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the child and waits for it.
func (p *process) stop() error {
	defer p.log.Close()
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended by itself: %w\n%s", p.name, p.err, p.tail())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	return errors.Join(fmt.Errorf("%s did not end when told to", p.name), err)
}

// tail gives the end of the log.
func (p *process) tail() string {
	if p.log == nil {
		return ""
	}
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// until polls for cond while the child lives.
func (p *process) until(ctx context.Context, what string, cond func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("wait for %s: %s ended: %w\n%s", what, p.name, p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", what, ctx.Err(), p.tail())
		}
	}
	return nil
}

// rest waits until the child has been running for d.
func (p *process) rest(ctx context.Context, d time.Duration) error {
	return pause(ctx, d-time.Since(p.started))
}

func (p *process) rss() (int64, error) { return measure.RSS(p.pid()) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
