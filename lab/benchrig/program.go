package benchrig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	agentsite "github.com/ingot-metal/ingot/agent/site"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/process"
)

// Program is a process with its log, or a part of this process.
type Program struct {
	Name string
	// Started is when it was started.
	Started time.Time

	process *process.Logged // nil in this process
	// In this process: how to end it, when it has ended, and with what.
	stop   func() error
	gone   chan struct{}
	result error
}

// start runs one of the binaries. Its log, beside its data, goes on where the one before ended.
func (r *Rig) start(name, binary string, args ...string) (*Program, error) {
	p := &process.Logged{Name: name, Log: r.Path(name + ".log"), Command: func() *exec.Cmd {
		return exec.Command(filepath.Join(r.Bin, binary), args...)
	}}
	return &Program{Name: name, Started: time.Now(), process: p}, p.Start()
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

// StartSiteAgent starts the agent of a site, with the simulated machines of its provider fake.
func (r *Rig) StartSiteAgent(ctx context.Context, site string) (*Program, error) {
	token, err := baremetalv1.NewAdminServiceClient(r.Conn).IssueBootstrapToken(ctx,
		&baremetalv1.IssueBootstrapTokenRequest{Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: site})
	if err != nil {
		return nil, fmt.Errorf("issue a token for the site agent: %w", err)
	}
	if r.InProcess {
		return r.startSiteInProcess(ctx, site, token.GetBundle())
	}
	file := r.Path(site + "-token")
	if err := os.WriteFile(file, []byte(token.GetBundle()), 0o600); err != nil {
		return nil, err
	}
	return r.start(site, "ingot-agent", "run", "--role", "site", "--host", "sim", "--state-dir", r.Path(site),
		"--sim-dir", r.Path(site+"-world"), "--sim-delay", "0s", "--token-file", file)
}

// startSiteInProcess runs the same in this process.
func (r *Rig) startSiteInProcess(ctx context.Context, site, bundle string) (*Program, error) {
	if err := os.MkdirAll(r.Path(site), 0o700); err != nil {
		return nil, err
	}
	world, err := fake.New(fake.Config{Dir: r.Path(site + "-world")})
	if err != nil {
		return nil, err
	}
	a := agent.New(agent.Config{
		StateDir: r.Path(site), Role: agent.RoleSite, Bundle: bundle, Log: slog.New(slog.DiscardHandler), Version: "bench",
		Providers: agentsite.Providers{world.Name(): world}, Host: agent.SimulatedHost(world.World(), site, time.Second),
	})
	return background(ctx, site, a.Run), nil
}

// background runs a program in this process until Stop.
func background(ctx context.Context, name string, run func(context.Context) error) *Program {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Program{Name: name, Started: time.Now(), gone: make(chan struct{})}
	task.Background(name, func() {
		p.result = run(runCtx)
		close(p.gone)
	})
	p.stop = func() error { cancel(); <-p.gone; return p.result }
	return p
}

// Gone is closed when it has ended.
func (p *Program) Gone() <-chan struct{} {
	if p.process == nil {
		return p.gone
	}
	return p.process.Gone()
}

// Tail is the last that it has said.
func (p *Program) Tail() string {
	if p.process == nil {
		return fmt.Sprint(p.result)
	}
	return p.process.Tail()
}

// Pid is the process's id.
func (p *Program) Pid() int {
	if p.process == nil {
		return os.Getpid()
	}
	return p.process.Pid()
}

// RSS is its resident memory in bytes.
func (p *Program) RSS() (int64, error) { return measure.RSS(p.Pid()) }

// Rest waits until the process has been running for d.
func (p *Program) Rest(ctx context.Context, d time.Duration) error {
	return Pause(ctx, d-time.Since(p.Started))
}

// await polls for ok while the process lives.
func (p *Program) await(ctx context.Context, what string, ok func() bool) error {
	if p.process != nil {
		return p.process.Await(ctx, what, ok)
	}
	for !ok() {
		if err := Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Stop asks it to end, and waits. It is an error when it had ended by itself.
func (p *Program) Stop() error {
	switch {
	case p.stop != nil:
		return p.stop()
	case p.process == nil:
		return nil // it was never started
	}
	select {
	case <-p.process.Gone():
		return fmt.Errorf("%s had ended by itself: %w\n%s", p.Name, p.process.Result(), p.process.Tail())
	default:
	}
	return p.process.Stop(time.Minute)
}

// Kill is kill -9.
func (p *Program) Kill() error { return p.process.Kill() }
