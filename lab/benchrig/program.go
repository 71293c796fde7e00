package benchrig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/process"
)

// Program is a process with its log, or a part of this process.
type Program struct {
	Name string
	// Started is when the process was started.
	Started time.Time

	running running
	log     *os.File
}

// running is what a Program is: a process, or a controller in this process.
type running interface {
	Pid() int
	Gone() <-chan struct{}
	Err() error
	Stop(limit time.Duration) error
	Kill() error
}

// start runs one of the binaries. Its log, beside its data, goes on where the one before ended.
func (r *Rig) start(name, binary string, args ...string) (*Program, error) {
	log, err := os.OpenFile(r.Path(name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Program{Name: name, Started: time.Now(), log: log}
	p.running, err = process.Start(process.Config{Path: filepath.Join(r.Bin, binary), Args: args, Output: log})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return p, nil
}

// StartAgent starts an agent of its own machine that is never given anything to do.
func (r *Rig) StartAgent(ctx context.Context) (*Program, error) {
	name := fmt.Sprintf("lone-%d", time.Now().Unix())
	spec, err := fleet.RegisterOne(ctx, r.Conn, r.Path("lone"), fleet.Spec{Name: name})
	if err != nil {
		return nil, err
	}
	token := r.Path("lone-token")
	if err := os.WriteFile(token, []byte(spec.Bundle), 0o600); err != nil {
		return nil, err
	}
	return r.start(name, "ingot-agent", "run", "--host", "sim", "--state-dir", r.Path(name), "--sim-dir",
		r.Path("lone-world"), "--token-file", token)
}

// Pid is the process's id.
func (p *Program) Pid() int { return p.running.Pid() }

// RSS is its resident memory in bytes.
func (p *Program) RSS() (int64, error) { return measure.RSS(p.Pid()) }

// Rest waits until the process has been running for d.
func (p *Program) Rest(ctx context.Context, d time.Duration) error {
	return Pause(ctx, d-time.Since(p.Started))
}

// until polls for cond while the process lives.
func (p *Program) until(ctx context.Context, what string, cond func(context.Context) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond(ctx) {
		select {
		case <-tick.C:
		case <-p.running.Gone():
			return fmt.Errorf("wait for %s: %s ended: %w\n%s", what, p.Name, p.running.Err(), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", what, ctx.Err(), p.tail())
		}
	}
	return nil
}

// tail is the end of the log.
func (p *Program) tail() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// Stop asks it to end, and waits. It is an error when it had ended by itself.
func (p *Program) Stop() error {
	if p.running == nil {
		return nil
	}
	select {
	case <-p.running.Gone():
		return errors.Join(fmt.Errorf("%s had ended by itself: %w\n%s", p.Name, p.running.Err(), p.tail()), p.log.Close())
	default:
	}
	return errors.Join(p.running.Stop(time.Minute), p.log.Close())
}

// Kill is kill -9.
func (p *Program) Kill() error { return errors.Join(p.running.Kill(), p.log.Close()) }
