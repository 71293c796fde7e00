package bmc

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// Observation is what one look at a BMC has brought.
type Observation struct {
	MachineID string
	// Endpoint as it was asked for.
	Endpoint string
	// Reachable: it has answered, and the credentials are right.
	Reachable bool
	Power     provider.PowerState
	// Protocol is "redfish" or "ipmi"; empty as long as it isn't known.
	Protocol string
	// Certificates are those that it has shown over TLS.
	Certificates Certificates
	// Reason is a baremetal.v1.Reason, and Message a sentence; both empty when Reachable.
	Reason, Message string
	SeenAt          time.Time
}

// ProberConfig is what a prober needs.
type ProberConfig struct {
	Provider *Provider
	Clock    clock.Clock
	Log      *slog.Logger
	// Every is the time between two looks at one BMC; 0 means 30 s. Machines are spread over it.
	Every time.Duration
	// AtOnce is how many BMCs are looked at at the same time; 0 means 16.
	AtOnce int
	// Report gets each observation. It is called from several goroutines.
	Report func(Observation)
	// HardwareEvery is the time between two readings of a machine's hardware; 0 means 10 minutes.
	HardwareEvery time.Duration
	// Hardware gets each reading, as Report does; nil: none is made, and no light is set.
	Hardware func(provider.Reading)
}

// Prober looks at BMCs again and again.
type Prober struct {
	cfg     ProberConfig
	changed chan struct{}
	slots   chan struct{}
	// reading are the places of those whose hardware is being read, which takes longer.
	reading chan struct{}

	mu      sync.Mutex
	targets map[string]*probed
}

// probed is one machine's place in the round.
type probed struct {
	target provider.Target
	due    time.Time
	busy   bool
	// read is when its hardware was read last, light the last order that its BMC has taken.
	read  time.Time
	light provider.Light
}

// NewProber makes a prober without targets.
func NewProber(cfg ProberConfig) *Prober {
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	if cfg.HardwareEvery == 0 {
		cfg.HardwareEvery = 10 * time.Minute
	}
	if cfg.AtOnce == 0 {
		cfg.AtOnce = 16
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Prober{
		cfg: cfg, changed: make(chan struct{}, 1), slots: make(chan struct{}, cfg.AtOnce),
		reading: make(chan struct{}, max(1, cfg.AtOnce/2)), targets: map[string]*probed{},
	}
}

// Replace sets the machines to look at. New ones, and those whose BMC or credentials have changed, are looked at soon.
func (p *Prober) Replace(targets []provider.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string]*probed{}
	for _, t := range targets {
		if t.BMCEndpoint == "" {
			continue
		}
		old := p.targets[t.MachineID]
		if old == nil || !sameBMC(old.target, t) {
			old = &probed{due: p.cfg.Clock.Now()}
		}
		if old.target.Light != t.Light {
			old.due = p.cfg.Clock.Now()
		}
		old.target = t
		next[t.MachineID] = old
	}
	p.targets = next
	p.wake()
}

func sameBMC(a, b provider.Target) bool {
	return a.BMCEndpoint == b.BMCEndpoint && a.CredentialsRef == b.CredentialsRef &&
		a.CredentialsVersion == b.CredentialsVersion
}

func (p *Prober) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends, and returns when nothing of it is running any more.
func (p *Prober) Run(ctx context.Context) error {
	group, ctx := task.New(ctx)
	for {
		due, next := p.take(p.cfg.Clock.Now())
		for _, d := range due {
			group.Go("probe "+d.target.MachineID, func(ctx context.Context) error { p.probe(ctx, d); return nil })
		}
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-p.changed:
		case <-p.cfg.Clock.After(next):
		}
	}
}

// take returns the targets that are due, and how long it is until the next one.
func (p *Prober) take(now time.Time) (due []*probed, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = p.cfg.Every
	for _, d := range p.targets {
		switch wait := d.due.Sub(now); {
		case d.busy: // wakes us when it is done
		case wait <= 0:
			d.busy = true
			due = append(due, d)
		default:
			next = min(next, wait)
		}
	}
	return due, next
}

func (p *Prober) probe(ctx context.Context, d *probed) {
	p.mu.Lock()
	t, read, light := d.target, d.read, d.light
	p.mu.Unlock()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	state, protocol, err := p.cfg.Provider.readPower(ctx, t)
	state = settled(state)
	<-p.slots
	now := p.cfg.Clock.Now()
	if ctx.Err() == nil {
		o := observed(t, state, protocol, err, now)
		o.Certificates = p.cfg.Provider.certificatesOf(t.BMCEndpoint)
		p.cfg.Report(o)
	}
	if err == nil && p.cfg.Hardware != nil {
		read, light = p.hardware(ctx, t, state, read, light)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d.busy, d.read, d.light = false, read, light
	if sameBMC(d.target, t) && d.target.Light == t.Light {
		d.due = now.Add(p.cfg.Every + jitter(t.MachineID, now, p.cfg.Every))
	}
	p.wake()
}

// hardware sets the light that was ordered, and reads the hardware where its time has come or the light was set. It
// returns the time of the last reading, and the last order that is done. If all slots are taken, it is left to the next
// round: the power states come first.
func (p *Prober) hardware(
	ctx context.Context, t provider.Target, power provider.PowerState, read time.Time, light provider.Light,
) (time.Time, provider.Light) {
	now := p.cfg.Clock.Now()
	due := now.Sub(read) >= p.cfg.HardwareEvery
	if !due && (t.Light == provider.LightUnknown || t.Light == light) {
		return read, light
	}
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	default:
		return read, light
	}
	if t.Light != provider.LightUnknown && t.Light != light {
		err := p.cfg.Provider.SetLight(ctx, t, t.Light)
		switch {
		case err == nil, errors.Is(err, effect.ErrUnsupported):
			light, due = t.Light, true // the reading reports a BMC without a light
		case ctx.Err() == nil:
			p.cfg.Log.WarnContext(ctx, "the identify light was not set", "machine_id", t.MachineID, "error", err)
		}
	}
	if !due {
		return read, light
	}
	r, err := p.cfg.Provider.ReadHardware(ctx, t)
	switch {
	case err == nil:
		if power != provider.PowerOn {
			r.Sensors = atRest(r.Sensors)
		}
		p.cfg.Hardware(r)
	case ctx.Err() == nil:
		p.cfg.Log.WarnContext(ctx, "the hardware was not read", "machine_id", t.MachineID, "error", err)
	}
	return now, light
}

// atRest takes the judgement from values of a machine that is off: its fans stand still and its rails have no voltage,
// which is no fault whatever the thresholds are. A sensor with a state keeps its judgement.
func atRest(sensors []provider.Sensor) []provider.Sensor {
	out := slices.Clone(sensors)
	for i := range out {
		if !out[i].Stateful {
			out[i].Health = ""
		}
	}
	return out
}

// jitter spreads machines over a fifth of the time, half of it before and half after, another way in each round.
func jitter(id string, now time.Time, every time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id + now.String())) // it has no errors
	span := int64(every / 5)
	if span == 0 {
		return 0
	}
	return time.Duration(int64(h.Sum32())%span - span/2)
}

// observed returns the observation of one reading.
func observed(t provider.Target, state provider.PowerState, protocol string, err error, now time.Time) Observation {
	o := Observation{MachineID: t.MachineID, Endpoint: t.BMCEndpoint, Reachable: err == nil, Power: state,
		Protocol: protocol, SeenAt: now}
	if err == nil {
		return o
	}
	o.Power = provider.PowerUnknown
	var e *failure.Error
	switch {
	case errors.As(err, &e):
		o.Reason, o.Message = e.Reason, e.Message
		if o.Protocol == "" {
			o.Protocol = e.Metadata[EvidenceProtocol]
		}
	case errors.Is(err, effect.ErrInvalid):
		o.Reason, o.Message = "INVALID_FIELD", err.Error()
	default:
		o.Reason, o.Message = "BMC_UNREACHABLE", err.Error()
	}
	return o
}
