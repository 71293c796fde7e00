package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

var quick = backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3, MaxDelay: 300 * time.Millisecond}

// MachineOptions change a Machine. The zero value is a host agent in a world without faults.
type MachineOptions struct {
	ID string
	// Site makes the machine one without an agent, behind a site agent with the fake provider.
	Site bool
	// SiteToo registers the machine with the provider of a site, for a site agent that a test adds.
	SiteToo string
	// World is shared with another machine; else there is one of its own.
	World *sim.World
	// Script and the times are those of the world.
	Script     string
	Delay      time.Duration
	RepaveTime time.Duration
	// SimID is the machine in the world; else it is the machine's id.
	SimID string
	// Address replaces the fleet address of the enrolment.
	Address string
	// Change has the last word over the agent's configuration.
	Change func(*agent.Config)
	// Stopped leaves the agent out; the test starts it.
	Stopped bool
	// Lines of a configuration file, in YAML, for the agent as a process of its own.
	Lines string
	// Supervised starts the agent again whenever it has crashed at a failpoint.
	Supervised bool
}

// Machine is a simulated machine and the agent that executes for it.
type Machine struct {
	t  testing.TB
	c  *Client
	o  MachineOptions
	ID string
	// World is outside the agent and the controller; its journal records what happened.
	World *sim.World
	// StateDir is the agent's.
	StateDir string
	FP       *failpoint.Scope
	Config   agent.Config

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	dials   int
	refuse  bool
	stop    context.CancelFunc
	done    chan struct{}
	err     error
	closed  bool
	held    bool // another task will start it
	crashed bool // told to crash, not to stop
	crashes int
}

// NewMachine registers a machine, issues a token for it and starts its agent.
func (c *Client) NewMachine(t testing.TB, o MachineOptions) *Machine {
	t.Helper()
	if o.ID == "" {
		o.ID = ids.New(ids.Machine)
	}
	siteName := o.SiteToo
	if o.Site {
		siteName = "site-" + o.ID
	}
	spec := &baremetalv1.MachineSpec{}
	if siteName != "" {
		spec.Provider, spec.Site = "fake", siteName
	}
	c.Register(&baremetalv1.Machine{MachineId: o.ID, Spec: spec})
	m := c.machine(t, o)
	if o.Site {
		m.Config.Bundle = c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{Role: baremetalv1.AgentRole_AGENT_ROLE_SITE,
			Site: siteName})
	} else {
		m.Config.Bundle = c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: o.ID})
	}
	if !o.Stopped {
		m.Start()
	}
	return m
}

// NewSite starts a site agent over a world, as a Machine without a record of its own.
func (c *Client) NewSite(t testing.TB, siteName string, w *sim.World, o MachineOptions) *Machine {
	t.Helper()
	o.Site, o.World = true, w
	if o.ID == "" {
		o.ID = ids.New(ids.Machine)
	}
	m := c.machine(t, o)
	m.Config.Bundle = c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{Role: baremetalv1.AgentRole_AGENT_ROLE_SITE,
		Site: siteName})
	if !o.Stopped {
		m.Start()
	}
	return m
}

func (c *Client) machine(t testing.TB, o MachineOptions) *Machine {
	t.Helper()
	m := &Machine{t: t, c: c, o: o, ID: o.ID, StateDir: t.TempDir(), FP: failpoint.NewScope(),
		conns: map[net.Conn]struct{}{}}
	if o.SimID == "" {
		m.o.SimID = o.ID
	}
	if o.Delay == 0 {
		m.o.Delay = 10 * time.Millisecond
	}
	m.World = o.World
	if m.World == nil {
		m.World = m.openWorld(t.TempDir())
	}
	m.Config = agent.Config{
		StateDir: m.StateDir, Version: "test", Failpoints: m.FP, Log: Logger().With("test_machine", o.ID), Dial: m.dial,
		RebootSettle: 300 * time.Millisecond, RebootPoll: 10 * time.Millisecond, ResendEvery: 100 * time.Millisecond,
		// On a machine that is busy an answer takes its time, and one to an earlier question counts for nothing.
		GrantWait: 2 * time.Second,
	}
	if o.Address != "" {
		m.Config.Addresses = []string{o.Address}
	}
	m.Config.Host = agent.SimulatedHost(m.World, m.o.SimID, 50*time.Millisecond)
	if o.Site {
		m.Config.Role = agent.RoleSite
		p, err := fake.New(m.worldConfig(m.World.Dir()))
		if err != nil {
			t.Fatalf("open provider: %v", err)
		}
		m.Config.Providers = site.Providers{p.Name(): p}
		own := m.openWorld(t.TempDir())
		m.Config.Host = agent.SimulatedHost(own, "site-machine", time.Second)
	}
	if o.Change != nil {
		o.Change(&m.Config)
	}
	t.Cleanup(m.close)
	return m
}

func (m *Machine) worldConfig(dir string) sim.WorldConfig {
	return sim.WorldConfig{
		Dir: dir, Script: m.o.Script, Delay: m.o.Delay, RepaveTime: m.o.RepaveTime, Crash: m.Crash, NoSync: true,
	}
}

func (m *Machine) openWorld(dir string) *sim.World {
	m.t.Helper()
	w, err := sim.OpenWorld(m.worldConfig(dir))
	if err != nil {
		m.t.Fatalf("open world: %v", err)
	}
	return w
}

// conn takes itself off the list when it is closed.
type conn struct {
	net.Conn
	m *Machine
}

func (c conn) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c.Conn)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

func (m *Machine) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	refuse := m.refuse
	m.dials++
	m.mu.Unlock()
	if refuse {
		return nil, errors.New("the test holds the network")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[c] = struct{}{}
	return conn{c, m}, nil
}

// Cut ends the agent's connections; it comes back by itself.
func (m *Machine) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		_ = c.Close() // the agent sees it
	}
}

// Dials counts the agent's attempts to connect.
func (m *Machine) Dials() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

// Isolate cuts the agent off until Rejoin.
func (m *Machine) Isolate() {
	m.mu.Lock()
	m.refuse = true
	m.mu.Unlock()
	m.Cut()
}

// Rejoin ends Isolate.
func (m *Machine) Rejoin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = false
}

// Start runs the agent.
func (m *Machine) Start() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		m.t.Error("the agent is running")
		return
	}
	m.startLocked()
}

func (m *Machine) startLocked() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	m.stop, m.done, m.err = stop, done, nil
	a := agent.New(m.Config)
	task.Background("agent under test", func() {
		err := a.Run(ctx)
		stop()
		m.ended(done, err)
	})
}

// ended notes the end of a life, and begins the next where it is supervised.
func (m *Machine) ended(done chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	crashed := errors.Is(err, failpoint.ErrInjected) || errors.Is(err, sim.ErrInjected) || m.crashed
	if err != nil && !crashed && !m.closed {
		m.t.Logf("the agent of %s ended by itself: %v", m.ID, err)
	}
	if m.done == done {
		m.stop, m.err, m.crashed = nil, err, false
		if m.o.Supervised && crashed && !m.closed && !m.held {
			m.crashes++
			m.startLocked()
		}
	}
	close(done)
}

// Running reports whether the agent runs.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop != nil
}

// Crashes counts the crashes after which the agent was started again.
func (m *Machine) Crashes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashes
}

// Stop stops the agent in peace and returns its error.
func (m *Machine) Stop() error {
	m.mu.Lock()
	stop := m.stop
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
	return m.End()
}

// End waits for the agent to end by itself.
func (m *Machine) End() error {
	m.t.Helper()
	for {
		m.mu.Lock()
		done, running := m.done, m.stop != nil
		m.mu.Unlock()
		if !running {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.err
		}
		select {
		case <-done:
		case <-time.After(time.Minute):
			m.t.Error("the agent does not end")
			return errors.New("the agent does not end")
		}
	}
}

// Crash cuts the agent's connections and cancels it, without waiting.
func (m *Machine) Crash() {
	m.Cut()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		m.crashed = true
		m.stop()
	}
}

func (m *Machine) hold(held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
}

// Restart crashes the agent and starts it again from its state directory. between may change that meanwhile.
func (m *Machine) Restart(between func()) {
	m.t.Helper()
	m.hold(true)
	defer m.hold(false)
	m.Crash()
	if err := m.End(); err != nil && !errors.Is(err, failpoint.ErrInjected) && !errors.Is(err, context.Canceled) {
		m.t.Logf("agent of %s ended with %v", m.ID, err)
	}
	if between != nil {
		between()
	}
	m.Start()
}

func (m *Machine) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	_ = m.Stop() // what it ended with was the test's to ask
}

// ForgetEverything wipes the agent's memory and leaves its identity, as a lost SQLite file would.
func (m *Machine) ForgetEverything() { removeMemory(m.t, m.StateDir) }

// Identity is what enrolment gave.
func (m *Machine) Identity() state.Identity {
	m.t.Helper()
	id, err := state.Dir(m.StateDir).Identity()
	if err != nil {
		m.t.Fatalf("read identity: %v", err)
	}
	return id
}

// WaitConnected waits until the controller has a live session of the agent.
func (m *Machine) WaitConnected() {
	m.t.Helper()
	testkit.Eventually(m.t, time.Minute, func() bool {
		enrolled, err := state.Dir(m.StateDir).Enrolled()
		if err != nil || !enrolled {
			return false
		}
		a, err := Call(m.t, m.c.Admin().GetAgent, &baremetalv1.GetAgentRequest{AgentId: m.Identity().AgentID})
		return err == nil && a.GetConnected()
	}, "the agent of %s is not connected: %v", m.ID, lazy(m.life))
}

// life is for the log of a failed test.
func (m *Machine) life() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("running %v, ended with %v, %d crashes, %d dials", m.stop != nil, m.err, m.crashes, m.dials)
}

// Journal is everything that happened to the world, after everything that is due.
func (m *Machine) Journal() []sim.EffectRecord {
	m.t.Helper()
	if err := m.World.Settle(); err != nil {
		m.t.Fatalf("settle world: %v", err)
	}
	records, err := sim.ReadJournal(m.World.Dir())
	if err != nil {
		m.t.Fatalf("read journal: %v", err)
	}
	return records
}

// Effects counts the effects of a command.
func (m *Machine) Effects(commandID string, kinds ...sim.Kind) int {
	m.t.Helper()
	return sim.CountByCommand(m.Journal(), kinds...)[commandID]
}

// Memory is the path of the agent's database.
func (m *Machine) Memory() string { return filepath.Join(m.StateDir, state.FileName) }
