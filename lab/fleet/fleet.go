package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config is what a Fleet needs.
type Config struct {
	// Dir holds the identities, a directory for each agent. An agent that finds its own there does not enrol.
	Dir string `json:"dir"`
	// Addresses are the fleet listeners, host:port; none means those that enrolment gave.
	Addresses []string `json:"addresses,omitempty"`
	Script    Script   `json:"script,omitempty"`
	// Broken are the names of machines on which every command fails.
	Broken []string `json:"broken,omitempty"`
	// Width is how many agents enrol or open their first session at once; 0 means 32.
	Width int `json:"width,omitempty"`
	// Reports makes every agent report an inventory at its start.
	Reports bool `json:"reports,omitempty"`
	// Room is how many bytes a process that serves the fleet may hold before a garbage collection; 0 is a share of the
	// live bytes. A collection over the memory of 15,000 agents takes half a minute where processors are short. Goroutines
	// that allocate meanwhile must assist: all agents stand still, and take their controllers for dead.
	Room int64 `json:"room,omitempty"`
}

// Spec is one agent.
type Spec struct {
	// Index numbers the agents of all processes; the address that the agent connects from follows from it.
	Index int `json:"index"`
	// Name is the machine's id.
	Name string `json:"name"`
	// Bundle is the bootstrap token; it is not needed where an identity is kept.
	Bundle string `json:"bundle,omitempty"`
}

// Fleet is many agents in this process.
type Fleet struct {
	cfg      Config
	receipts *Receipts
	log      *slog.Logger
	ctx      context.Context //nolint:containedctx // the life of all agents
	cancel   context.CancelFunc
	group    *task.Group
	dial     transport.Dialer
	slots    chan struct{}

	mu     sync.Mutex
	agents []*agent

	enrolled, opened, reboots, restarts atomic.Int64
}

// Start makes a fleet without agents, and raises the limit of open files as far as it may.
func Start(ctx context.Context, cfg Config) (*Fleet, error) {
	if err := raiseFiles(); err != nil {
		return nil, err
	}
	if cfg.Width == 0 {
		cfg.Width = 32
	}
	f := &Fleet{cfg: cfg, receipts: newReceipts(), dial: transport.NetDialer(), slots: make(chan struct{}, cfg.Width)}
	f.log = slog.New(f.receipts)
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.group, f.ctx = task.New(ctx)
	return f, nil
}

func raiseFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return nil
}

// Add starts agents, a few at a time, and does not wait for them.
func (f *Fleet) Add(specs ...Spec) {
	fresh := make([]*agent, 0, len(specs))
	for _, s := range specs {
		fresh = append(fresh, f.newAgent(s))
	}
	f.mu.Lock()
	f.agents = append(f.agents, fresh...)
	f.mu.Unlock()
	f.group.Go("start agents", func(ctx context.Context) error {
		for _, a := range fresh {
			if f.cfg.Reports {
				if err := a.report(ctx); err != nil {
					return err
				}
			}
			select {
			case f.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			f.group.Go("agent", a.run)
			f.group.Go("await agent", func(ctx context.Context) error {
				defer func() { <-f.slots }()
				select {
				case <-a.welcomed:
				case <-ctx.Done():
				}
				return nil
			})
		}
		return nil
	})
}

func (f *Fleet) newAgent(s Spec) *agent {
	a := &agent{
		f: f, spec: s, dir: state.Dir(filepath.Join(f.cfg.Dir, s.Name)), machine: newMachine(s.Name, f.cfg.scriptOf(s.Name)),
		welcomed: make(chan struct{}), dial: f.dialer(source(s.Index)),
	}
	a.memory.Store(newMemory())
	return a
}

// scriptOf is the script of one machine.
func (c Config) scriptOf(name string) Script {
	if !slices.Contains(c.Broken, name) {
		return c.Script
	}
	s := Script{}
	for _, kind := range kinds {
		b := c.Script[kind]
		b.Fail = 1
		s[kind] = b
	}
	return s
}

// perAddress is how many agents share a source address.
const perAddress = 1000

// source is the loopback address that an agent connects from.
func source(index int) netip.Addr {
	n := index / perAddress
	return netip.AddrFrom4([4]byte{127, byte(1 + n/250), byte(1 + n%250), 1})
}

func (f *Fleet) dialer(from netip.Addr) transport.Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().IsLoopback() {
			ctx = transport.WithSource(ctx, from)
		}
		return f.dial(ctx, address)
	}
}

// Status is how the fleet is.
type Status struct {
	Agents    int `json:"agents"`
	Connected int `json:"connected"`
	// Enrolled counts certificates that were got, Opened the sessions ever opened, Reboots the simulated reboots. A fleet
	// has lost Opened - Agents - Reboots sessions, once all of its agents have had one.
	Enrolled int64 `json:"enrolled"`
	Opened   int64 `json:"opened"`
	Reboots  int64 `json:"reboots"`
	// Restarts counts agents that ended by themselves and were started again.
	Restarts int64 `json:"restarts,omitempty"`
	// Buffered are the events that wait for the controller's acknowledgement.
	Buffered int64 `json:"buffered"`
	// Failed is why the fleet has ended, if it has.
	Failed string `json:"failed,omitempty"`
	// Trouble is the last warning that an agent has logged.
	Trouble string `json:"trouble,omitempty"`
}

// Status looks at every agent.
func (f *Fleet) Status() Status {
	st := Status{
		Enrolled: f.enrolled.Load(), Opened: f.opened.Load(), Reboots: f.reboots.Load(),
		Restarts: f.restarts.Load(), Trouble: f.receipts.lastTrouble(),
	}
	if err := context.Cause(f.ctx); err != nil {
		st.Failed = err.Error()
	}
	for _, a := range f.all() {
		st.Agents++
		if a.connected() {
			st.Connected++
		}
		st.Buffered += a.buffered()
	}
	return st
}

func (f *Fleet) all() []*agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.agents[:len(f.agents):len(f.agents)]
}

// Report lets every agent report an inventory.
func (f *Fleet) Report(ctx context.Context) error {
	for _, a := range f.all() {
		if err := a.report(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Reported is how many inventories each machine's agent has reported.
func (f *Fleet) Reported() map[string]int64 {
	out := map[string]int64{}
	for _, a := range f.all() {
		out[a.spec.Name] = a.events.Load()
	}
	return out
}

// Receipts returns when commands were received.
func (f *Fleet) Receipts() *Receipts { return f.receipts }

// Done is closed when the fleet has ended; Stop returns the reason.
func (f *Fleet) Done() <-chan struct{} { return f.ctx.Done() }

// Stop ends all agents and waits for them. It returns the first error that an agent has ended with.
func (f *Fleet) Stop() error {
	f.cancel()
	return f.group.Wait()
}

// AwaitConnected waits until n sessions are open at the same time.
func (f *Fleet) AwaitConnected(ctx context.Context, n int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for f.Status().Connected < n {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return fmt.Errorf("await sessions: an agent has ended: %w", context.Cause(f.ctx))
		case <-ctx.Done():
			return fmt.Errorf("await sessions: %w: %+v", ctx.Err(), f.Status())
		}
	}
	return nil
}
