package metal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/process"
)

// Where the controller is, for the site and its machines. One that is joined must advertise these.
const (
	FleetAddress     = ControllerAddress + ":" + fleetPort
	EnrolmentAddress = ControllerAddress + ":" + enrolmentPort
)

// The addresses of the lab. They are in a network of their own, so that several labs don't meet.
const (
	SiteAddress       = "10.77.0.1"
	PoolStart         = "10.77.0.100"
	PoolEnd           = "10.77.0.199"
	ControllerAddress = "192.0.2.1"
	// SwitchDevice is the switch's, on which all traffic passes.
	SwitchDevice = "rack0"
	siteCard     = "site0"
	SiteName     = "lab"
	segmentName  = "rack1"
	prefixBits   = 24
)

// Config describes a lab.
type Config struct {
	// Dir is the lab's own directory; it is made. Its path must be short, because of Unix sockets in it. It must be open
	// to other users when this is run by root, whose Postgres runs as another user.
	Dir string
	// Controller and Agent are the programs.
	Controller, Agent string
	// Join is a controller that runs already; none is started then.
	Join *Controller
	// Frontpage is the address for clients on the host's loopback; a free port when its port is 0.
	Frontpage string
	// Bare leaves out controller and site agent: machines, their BMCs and the switch alone, for another site to be
	// connected.
	Bare bool
	// Proxy leaves the addresses to another DHCP server. Static has no DHCP server.
	Proxy, Static bool
	Log           *slog.Logger
}

// Lab is a running lab.
type Lab struct {
	cfg    Config
	ns     *network.Namespace // of the site agent
	rack   *network.Namespace // of the switch and the machines
	sw     *network.Switch
	client *Client

	controller *process.Logged
	reach      Controller
	http       string // of our own controller
	tunnels    []*network.Tunnel
	site       *process.Logged

	mu       sync.Mutex
	machines []*Machine
}

// Up starts controller and site agent, and configures the site. Close must be called.
func Up(ctx context.Context, cfg Config) (*Lab, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	l := &Lab{cfg: cfg}
	type step struct {
		name string
		do   func(context.Context) error
	}
	steps := []step{{"make directories", l.directories}, {"make the network", l.wire}}
	if !cfg.Bare {
		steps = append(steps, step{"give the site its address", l.addressSite},
			step{"start the controller", l.findController}, step{"set up the site", l.setUpSite},
			step{"start the site agent", l.enrolSite})
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", step.name, err), l.Close())
		}
	}
	return l, nil
}

func (l *Lab) directories(context.Context) error {
	for _, dir := range []string{l.path("logs"), l.path("site"), l.path("machines")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.cfg.Dir}, parts...)...)
}

func (l *Lab) wire(context.Context) (err error) {
	if l.ns, err = network.New(); err != nil {
		return err
	}
	if l.rack, err = network.New(); err != nil {
		return err
	}
	l.sw, err = l.rack.Switch(SwitchDevice)
	return err
}

func (l *Lab) addressSite(context.Context) error {
	if err := l.sw.Card(l.ns, siteCard, netip.MustParsePrefix(SiteAddress+"/24")); err != nil {
		return err
	}
	return l.ns.Address("lo", netip.MustParsePrefix(ControllerAddress+"/32"))
}

// SiteNetwork is the namespace of the site agent and the BMCs.
func (l *Lab) SiteNetwork() *network.Namespace { return l.ns }

// RackNetwork is the namespace of the switch, on whose device all traffic can be captured.
func (l *Lab) RackNetwork() *network.Namespace { return l.rack }

// Switch is the provisioning segment.
func (l *Lab) Switch() *network.Switch { return l.sw }

// Client speaks to the controller's API.
func (l *Lab) Client() *Client { return l.client }

// endLimit is how long a program may take to end.
const endLimit = 20 * time.Second

// Close ends everything. The directory stays.
func (l *Lab) Close() error {
	var errs []error
	l.mu.Lock()
	machines := l.machines
	l.mu.Unlock()
	for _, m := range machines {
		errs = append(errs, m.close())
	}
	if l.site != nil {
		errs = append(errs, l.site.Stop(endLimit))
	}
	if l.client != nil {
		errs = append(errs, l.client.close())
	}
	for _, t := range l.tunnels {
		errs = append(errs, t.Close())
	}
	if l.controller != nil {
		errs = append(errs, l.controller.Stop(endLimit))
	}
	for _, ns := range []*network.Namespace{l.rack, l.ns} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
