package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/kill/judge"
	"github.com/ingot-metal/ingot/lab/relay"
)

// agentProgram is the agent of a site, or of one simulated machine.
type agentProgram struct {
	program.Program
	f       *fleet
	index   int    // of its relays
	machine string // empty for the site agent
}

// newSite starts the agent of the site, whose machines are simulated.
func (f *fleet) newSite(ctx context.Context) (*agentProgram, error) {
	a := &agentProgram{f: f}
	return a, a.start(ctx, "site", "site", "site-machine", time.Millisecond, &baremetalv1.IssueBootstrapTokenRequest{
		Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: judge.Site})
}

// rebootTimes differ, so that faults strike short and long reboots.
var rebootTimes = []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 40 * time.Millisecond}

// newHost starts the agent of one simulated machine.
func (f *fleet) newHost(ctx context.Context, i int) (*agentProgram, error) {
	a := &agentProgram{f: f, index: i + 1, machine: fmt.Sprintf("h-%02d", i+1)}
	if err := f.register(ctx, a.machine, nil); err != nil {
		return nil, err
	}
	return a, a.start(ctx, fmt.Sprintf("agent-%02d", i+1), "host", a.machine, rebootTimes[i%len(rebootTimes)],
		&baremetalv1.IssueBootstrapTokenRequest{MachineId: a.machine})
}

func (a *agentProgram) start(
	ctx context.Context, name, role, simID string, delay time.Duration, r *baremetalv1.IssueBootstrapTokenRequest,
) error {
	f := a.f
	log, err := program.OpenLog(f.path(name + ".log"))
	if err != nil {
		return err
	}
	clock, err := f.newClock(name)
	if err != nil {
		return err
	}
	a.Program = program.Program{
		Name: name, Log: log, Ended: f.ended, Clock: clock,
		Command: func() (string, []string) {
			return filepath.Join(f.bin, "ingot-agent"), []string{"run", "--config", a.file("yaml")}
		},
	}
	t, err := f.controllers[0].admin().IssueBootstrapToken(ctx, r)
	if err != nil {
		return fmt.Errorf("issue a token: %w", err)
	}
	err = errors.Join(os.MkdirAll(f.path("memory-"+name), 0o700),
		os.WriteFile(a.file("token"), []byte(t.GetBundle()), 0o600),
		os.WriteFile(a.file("yaml"), a.configuration(role, simID, delay), 0o600))
	if err != nil {
		return err
	}
	return a.Start("")
}

func (a *agentProgram) file(extension string) string { return a.f.path(a.Name + "." + extension) }

func (a *agentProgram) configuration(role, simID string, delay time.Duration) []byte {
	var addresses []string
	for _, p := range a.f.controllers {
		addresses = append(addresses, fmt.Sprintf("%q", p.fleet[a.index].Address()))
	}
	return fmt.Appendf(nil, `
state_dir: %q
host: sim
role: %s
token_file: %q
addresses: [%s]
log: {level: info, format: json}
sim: {dir: %q, machine_id: %q, delay: %v, repave_time: 200ms, recorder: %q}
`, a.f.path("memory-"+a.Name), role, a.file("token"), strings.Join(addresses, ", "), a.f.path("world"), simID, delay,
		a.f.path("recorder"))
}

// ways returns the relays between the agent and each controller.
func (a *agentProgram) ways() []*relay.Relay {
	var out []*relay.Relay
	for _, p := range a.f.controllers {
		out = append(out, p.fleet[a.index])
	}
	return out
}

func (f *fleet) register(ctx context.Context, id string, spec *baremetalv1.MachineSpec) error {
	_, err := f.controllers[0].machines().RegisterMachine(ctx,
		&baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{MachineId: id, Spec: spec}})
	if err != nil {
		return fmt.Errorf("register %s: %w", id, err)
	}
	return nil
}

// connected returns the connected agents by id.
func (f *fleet) connected(ctx context.Context) map[string]*baremetalv1.Agent {
	ctx, cancel := context.WithTimeout(ctx, calmLimit)
	defer cancel()
	list, err := f.controllers[0].admin().ListAgents(ctx, &baremetalv1.ListAgentsRequest{Filter: "connected=true"})
	if err != nil {
		return nil
	}
	out := map[string]*baremetalv1.Agent{}
	for _, a := range list.GetAgents() {
		out[a.GetAgentId()] = a
	}
	return out
}

func (f *fleet) allConnected(ctx context.Context) bool { return len(f.connected(ctx)) == 1+f.o.hosts }
