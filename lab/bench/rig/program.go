package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/process"
)

// logged is a program whose log stands beside its data. A second start adds to the log of the first.
func (r *Rig) logged(name, program string, args ...string) *process.Logged {
	return &process.Logged{Name: name, Log: r.Path(name + ".log"), Command: func() *exec.Cmd {
		return exec.Command(program, args...)
	}}
}

// startAgent starts an agent with a bootstrap token.
func (r *Rig) startAgent(name, bundle string, args ...string) (*process.Logged, error) {
	token := r.Path(name + "-token")
	if err := os.WriteFile(token, []byte(bundle), 0o600); err != nil {
		return nil, err
	}
	p := r.logged(name, filepath.Join(r.Bin, "ingot-agent"), append([]string{"run", "--host", "sim", "--state-dir",
		r.Path(name), "--sim-dir", r.Path(name + "-world"), "--token-file", token}, args...)...)
	return p, p.Start()
}

// StartAgent starts an agent of its own machine that never gets a command.
func (r *Rig) StartAgent(ctx context.Context) (*process.Logged, error) {
	name := fmt.Sprintf("lone-%d", time.Now().Unix())
	spec, err := fleet.RegisterOne(ctx, r.Conn, r.Path("lone"), fleet.Spec{Name: name})
	if err != nil {
		return nil, err
	}
	return r.startAgent(name, spec.Bundle)
}

// StartSiteAgent starts the agent of a site, with the simulated machines of its provider fake.
func (r *Rig) StartSiteAgent(ctx context.Context, site string) (*process.Logged, error) {
	token, err := baremetalv1.NewAdminServiceClient(r.Conn).IssueBootstrapToken(ctx,
		&baremetalv1.IssueBootstrapTokenRequest{Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: site})
	if err != nil {
		return nil, fmt.Errorf("issue a token for the site agent: %w", err)
	}
	return r.startAgent(site, token.GetBundle(), "--role", "site", "--sim-delay", "0s")
}

// Stop ends a program and waits. It returns an error when the program had ended by itself.
func Stop(p *process.Logged) error {
	if p.Process == nil {
		return nil
	}
	select {
	case <-p.Gone():
		return fmt.Errorf("%s had ended by itself: %w\n%s", p.Name, p.Result(), p.Tail())
	default:
		return p.Stop(time.Minute)
	}
}
