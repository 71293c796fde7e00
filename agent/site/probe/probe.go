// Package probe asks machines without an agent whether they answer on the network.
//
// A machine answers when its port 22 takes or refuses a connection, or when the kernel has just had its answer to ARP.
// An address that another network card answers for is not the machine's.
package probe

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// How a machine answered. Firmware that boots from the network may refuse connections, and never takes one.
const (
	ByOpen    = "open"
	ByRefused = "refused"
	ByARP     = "arp"
)

const (
	// port is that of ssh: most systems listen there, and the others refuse.
	port = 22
	// DefaultEvery is how often each machine is asked.
	DefaultEvery = 30 * time.Second
	// patience bounds one question, and atOnce how many are open.
	patience = 3 * time.Second
	atOnce   = 16
	// misses is how many questions in a row go unanswered before a machine counts as silent.
	misses = 2
	// steady is how long a machine must go on refusing connections to have started a system.
	steady = time.Minute
)

// Target is a machine without an agent.
type Target struct {
	MachineID string
	MACs      []segment.MAC
	// Address is used where no network card of the machine leases one; the zero Addr: not known.
	Address netip.Addr
}

// Answer is what came of one question. By is empty where nothing did.
type Answer struct {
	Address netip.Addr
	By      string
	At      time.Time
}

// Neighbour is what the kernel knows of an address on its segment.
type Neighbour struct {
	MAC segment.MAC
	// Fresh: the card has answered within the last seconds.
	Fresh bool
}

// Config describes a Prober. All but Every, Port and Patience are required.
type Config struct {
	// Leased is the address that a network card holds now.
	Leased func(segment.MAC) (netip.Addr, bool)
	// Neighbour is who answers for an address on the segments; false for one that is not on them.
	Neighbour func(netip.Addr) (Neighbour, bool)
	// Report is called with each machine's state, after each conclusive answer.
	Report func(Target, Answer)
	Clock  clock.Clock
	Log    *slog.Logger
	Every  time.Duration
	// Port and Patience are for tests.
	Port     uint16
	Patience time.Duration
}

// Prober asks its targets again and again. It is safe for concurrent use.
type Prober struct {
	cfg Config

	mu      sync.Mutex
	targets []Target
	missed  map[string]int
	wake    chan struct{}
}

// New makes a Prober without targets.
func New(cfg Config) *Prober {
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Port == 0 {
		cfg.Port = port
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	return &Prober{cfg: cfg, missed: map[string]int{}, wake: make(chan struct{}, 1)}
}

// Replace sets the machines to ask from now on.
func (p *Prober) Replace(targets []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.EqualFunc(p.targets, targets, same) {
		return
	}
	p.targets = targets
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func same(a, b Target) bool {
	return a.MachineID == b.MachineID && a.Address == b.Address && slices.Equal(a.MACs, b.MACs)
}

// Run asks until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	tick := p.cfg.Clock.NewTicker(p.cfg.Every)
	defer tick.Stop()
	for {
		p.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-p.wake:
		}
	}
}

// round asks each machine once.
func (p *Prober) round(ctx context.Context) {
	p.mu.Lock()
	targets := slices.Clone(p.targets)
	p.mu.Unlock()
	group, ctx := task.New(ctx)
	slots := make(chan struct{}, atOnce)
	for _, t := range targets {
		slots <- struct{}{}
		group.Go("probe "+t.MachineID, func(ctx context.Context) error {
			defer func() { <-slots }()
			if a := p.Ask(ctx, t); ctx.Err() == nil && p.certain(t, a) {
				p.cfg.Report(t, a)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		p.cfg.Log.Error("a probe has failed", "error", err)
	}
}

// certain counts questions without an answer, and reports whether there are enough of them.
func (p *Prober) certain(t Target, a Answer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.By != "" {
		delete(p.missed, t.MachineID)
		return true
	}
	p.missed[t.MachineID]++
	return p.missed[t.MachineID] >= misses
}

// Ask asks a machine once.
func (p *Prober) Ask(ctx context.Context, t Target) Answer {
	a := Answer{Address: p.address(t)}
	if a.Address.IsValid() {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.Patience)
		a.By = p.dial(ctx, t, a.Address)
		cancel()
	}
	a.At = p.cfg.Clock.Now()
	return a
}

func (p *Prober) address(t Target) netip.Addr {
	for _, mac := range t.MACs {
		if a, ok := p.cfg.Leased(mac); ok {
			return a
		}
	}
	return t.Address
}

func (p *Prober) dial(ctx context.Context, t Target, at netip.Addr) (by string) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(at, p.cfg.Port).String())
	switch {
	case err == nil:
		by = ByOpen
		_ = c.Close() // nothing was sent
	case errors.Is(err, unix.ECONNREFUSED):
		by = ByRefused
	}
	n, known := p.cfg.Neighbour(at)
	own := len(t.MACs) == 0 || slices.Contains(t.MACs, n.MAC)
	switch {
	case known && !own:
		return "" // another machine has the address
	case by == "" && known && n.Fresh:
		return ByARP
	}
	return by
}

// AwaitSystem returns the first answer that comes from a system, not from firmware: a connection that is taken, or a
// minute of refused ones. It asks every so often, until ctx ends.
func (p *Prober) AwaitSystem(ctx context.Context, t Target, every time.Duration) (Answer, error) {
	var since time.Time
	for {
		a := p.Ask(ctx, t)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case a.By == ByOpen:
			return a, nil
		case a.By != ByRefused:
			since = time.Time{}
		case since.IsZero():
			since = a.At
		case a.At.Sub(since) >= steady:
			return a, nil
		}
		select {
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-p.cfg.Clock.After(every):
		}
	}
}
