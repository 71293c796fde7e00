package maas

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Target is a machine to look at.
type Target struct {
	MachineID, RegionRef string
	// RegionVersion changes whenever the region's address or key does; 0 means that the region is not known.
	RegionVersion int64
	MACs          []string
	// Serial is the registered serial number; empty for none.
	Serial string
}

// Observation is a region's state of a machine.
type Observation struct {
	MachineID string
	// Reachable: the region has answered. Reason and Message say why not.
	Reachable       bool
	Reason, Message string
	// M is nil where the region has no such machine.
	M *Machine
	// HeldBy is the evidence that another client has the machine, or that it is other hardware; empty if it is ours, or
	// free.
	HeldBy string
	SeenAt time.Time
}

// ProberConfig is what a prober needs.
type ProberConfig struct {
	// Open returns the client of a target's region.
	Open  func(ctx context.Context, t Target) (*Client, error)
	Clock clock.Clock
	Log   *slog.Logger
	// Every is the time between two looks; 0 means 30 s.
	Every  time.Duration
	Report func(Observation)
}

// Prober looks at what regions say of machines, again and again.
type Prober struct {
	cfg     ProberConfig
	changed chan struct{}
	mu      sync.Mutex
	targets []Target
}

// NewProber makes a prober without targets.
func NewProber(cfg ProberConfig) *Prober {
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	return &Prober{cfg: cfg, changed: make(chan struct{}, 1)}
}

// Replace sets the machines to look at; they are looked at soon where they are others than before.
func (p *Prober) Replace(targets []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.EqualFunc(p.targets, targets, sameTarget) {
		return
	}
	p.targets = targets
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func sameTarget(a, b Target) bool {
	return a.MachineID == b.MachineID && a.RegionRef == b.RegionRef && a.RegionVersion == b.RegionVersion &&
		a.Serial == b.Serial && slices.Equal(a.MACs, b.MACs)
}

// Run looks until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	for {
		p.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case <-p.cfg.Clock.After(p.cfg.Every):
		}
	}
}

// atOnce is how many machines are asked for together: what goes wrong with one answer goes wrong for all of them.
const atOnce = 40

func (p *Prober) round(ctx context.Context) {
	p.mu.Lock()
	byRegion := map[string][]Target{}
	for _, t := range p.targets {
		byRegion[t.RegionRef] = append(byRegion[t.RegionRef], t)
	}
	p.mu.Unlock()
	for _, ref := range slices.Sorted(maps.Keys(byRegion)) {
		for part := range slices.Chunk(byRegion[ref], atOnce) {
			p.look(ctx, part)
		}
	}
}

func (p *Prober) look(ctx context.Context, targets []Target) {
	var (
		list []*Machine
		user string
	)
	client, err := p.cfg.Open(ctx, targets[0])
	if err == nil {
		var macs []string
		for _, t := range targets {
			macs = append(macs, t.MACs...)
		}
		if list, err = client.Find(ctx, macs); err == nil {
			user, err = client.User(ctx)
		}
	}
	if ctx.Err() != nil {
		return
	}
	now := p.cfg.Clock.Now()
	for _, t := range targets {
		p.cfg.Report(observed(t, list, user, err, now))
	}
}

// observed returns the observation of one machine in a region's answer. user is the key's.
func observed(t Target, list []*Machine, user string, err error, now time.Time) Observation {
	o := Observation{MachineID: t.MachineID, SeenAt: now}
	if err == nil {
		var own []*Machine
		for _, m := range list {
			if m.hasAny(t.MACs) {
				own = append(own, m)
			}
		}
		o.M, err = the(own, "")
	}
	o.Reachable, o.HeldBy = err == nil, heldBy(t.MachineID, o.M, user)
	if v := otherMachine(t.Serial, o.M); v.Other() {
		o.HeldBy = cmp.Or(o.HeldBy, "its hardware there is another machine's: "+v.String())
	}
	if err != nil {
		o.Reason, o.Message = "MAAS_UNREACHABLE", err.Error()
	}
	// What the controller refuses comes as a gRPC status, with its reason inside.
	if why := failure.From(err); why != nil && why.Reason != "" && why.Reason != failure.ReasonInternal {
		o.Reason, o.Message = why.Reason, why.Message
	}
	return o
}

func (m *Machine) hasAny(macs []string) bool {
	return slices.ContainsFunc(append([]NIC{m.Boot}, m.NICs...),
		func(n NIC) bool { return n.MAC != "" && slices.Contains(macs, n.MAC) })
}
