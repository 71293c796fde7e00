package bmc

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Credentials of a BMC. Version changes whenever they or their allowance do.
type Credentials struct {
	Username, Password string
	Version            int64
	// Allowed are the endpoints that they may be sent to. An empty allowance covers none.
	Allowed bmcaddr.Allowance
	// PlainHTTP allows redfish+http, UnverifiedTLS any certificate: then none is pinned.
	PlainHTTP, UnverifiedTLS bool
}

// Config is what the provider needs. Credentials and Clock are needed; the rest has defaults.
type Config struct {
	// Credentials returns those of one machine's BMC. It is called before the first contact, after a change of the
	// target's version, and after a refusal of the known ones.
	Credentials func(ctx context.Context, t provider.Target) (Credentials, error)
	Clock       clock.Clock
	Log         *slog.Logger
	// Memory keeps pins, protocols and parked credentials over restarts.
	Memory Memory
	// RootCAs sign the certificates of BMCs; nil means that certificates are pinned.
	RootCAs *x509.CertPool
	// Timeout of one exchange, a log-in included; 0 means 20 s.
	Timeout time.Duration
	// SoftOff is how long an operating system may take to go down before the power is cut; 0 means 90 s.
	SoftOff time.Duration
	// Within is how long a switch may take to be read back; 0 means 60 s.
	Within time.Duration
}

// Provider is the provider "agent". Its methods may be called from any goroutine.
type Provider struct {
	cfg Config

	mu    sync.Mutex
	links map[string]*conn
	// pins are the certificates that the controller knows, certificates those that were seen, both by Endpoint.Key.
	pins         map[string]string
	unparked     map[string]time.Time       // when an admin had a BMC asked again, by Endpoint.Key
	marks        map[string]provider.Target // the values that distinguish machines behind one BMC, by machine
	certificates map[string]Certificates
}

var (
	_ provider.Base      = (*Provider)(nil)
	_ provider.Power     = (*Provider)(nil)
	_ provider.Reboot    = (*Provider)(nil)
	_ provider.Netboot   = (*Provider)(nil)
	_ provider.OutOfBand = (*Provider)(nil)
)

// New makes the provider. Close ends its sessions.
func New(cfg Config) *Provider {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Memory == nil {
		cfg.Memory = noMemory{}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	if cfg.SoftOff == 0 {
		cfg.SoftOff = 90 * time.Second
	}
	if cfg.Within == 0 {
		cfg.Within = time.Minute
	}
	return &Provider{
		cfg: cfg, links: map[string]*conn{}, pins: map[string]string{}, unparked: map[string]time.Time{},
		marks: map[string]provider.Target{}, certificates: map[string]Certificates{},
	}
}

// Know replaces the known machines' UUIDs, serial numbers and firmware. Commands do not carry these.
func (p *Provider) Know(targets []provider.Target) {
	marks := map[string]provider.Target{}
	for _, t := range targets {
		marks[t.MachineID] = t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks = marks
}

// known is the target with the UUID, serial number and firmware of the machine, where the target itself has none.
func (p *Provider) known(t provider.Target) provider.Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.marks[t.MachineID]
	t.UUID, t.Serial, t.BIOS = cmp.Or(t.UUID, m.UUID), cmp.Or(t.Serial, m.Serial), t.BIOS || m.BIOS
	return t
}

// Name is "agent": what site agents do themselves.
func (p *Provider) Name() string { return "agent" }

// Simulated is false.
func (p *Provider) Simulated() bool { return false }

// Close ends the sessions at all BMCs, as far as they let us.
func (p *Provider) Close(ctx context.Context) {
	p.mu.Lock()
	links := make([]*conn, 0, len(p.links))
	for _, l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		if l.take(ctx) == nil {
			l.close(ctx)
			l.release()
		}
	}
}

func (p *Provider) connOf(key string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[key]
	if l == nil {
		l = &conn{key: key, turn: make(chan struct{}, 1)}
		p.links[key] = l
	}
	return l
}
