package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// settleTime is how long a new configuration may take to show in the kernel: IPv6 addresses wait a second for their
	// duplicates, bonds for their members.
	settleTime = 15 * time.Second
	settlePoll = 100 * time.Millisecond
	// settleReads in a row must be good: networkd begins a little after the order.
	settleReads = 2
	// nudgeAfter is when networkd is asked again to configure each interface, for changes that a reload does not notice.
	nudgeAfter = 2 * time.Second
	// busyTime is how long a way back waits for networkd to be done: a lease or an advertisement may never come.
	busyTime = 5 * time.Second
)

// Configurator sets the interfaces of the host, through who manages them or in the kernel.
type Configurator struct {
	*system.System
	// Managers are those that the host may have, the first choice first.
	Managers []Manager
	mu       sync.Mutex // from writing our files to the kernel showing them
}

// New makes the configurator of a host with one of the managers, or with none where the agent is init.
func New(s *system.System, managers ...Manager) *Configurator {
	return &Configurator{System: s, Managers: managers}
}

// NetworkSupport refuses a configuration that nothing on this host can apply. Where systemd is init that needs a
// manager of interfaces; where the agent is init it configures the kernel itself, without DHCP.
func (n *Configurator) NetworkSupport(ctx context.Context, c Config) error {
	if !n.HasCapability(unix.CAP_NET_ADMIN) {
		return effect.Refuse(effect.ErrNotWired, effect.ReasonNetworkNotWired, "configuring interfaces needs CAP_NET_ADMIN")
	}
	if n.RunsSystemd() {
		_, err := n.manager(ctx, c)
		return err
	}
	for _, i := range c.Interfaces {
		if i.DHCP4 || i.DHCP6 {
			return effect.Refuse(
				effect.ErrNotWired,
				effect.ReasonNetworkNotWired,
				"%s: a host without a manager of interfaces has no DHCP client for it",
				i.Key(),
			)
		}
	}
	return nil
}

// Network reads back files and kernel.
func (n *Configurator) Network(ctx context.Context, c Config, before *SavedNetwork) (State, error) {
	if before == nil {
		return n.readNetwork(ctx, c, nil)
	}
	return n.readNetwork(ctx, c, before.Links)
}

// readNetwork compares with the configuration; before is nil, or what the named links showed when a change began.
func (n *Configurator) readNetwork(ctx context.Context, c Config, before []SavedLink) (State, error) {
	if err := ctx.Err(); err != nil {
		return State{}, err
	}
	macs, err := cardsByMAC()
	if err != nil {
		return State{}, err
	}
	now, err := kernelLinks()
	if err != nil {
		return State{}, err
	}
	var diff strings.Builder
	m, err := n.managerNow(ctx, c)
	if err != nil {
		return State{}, err
	}
	if m != nil {
		cards, err := readCards()
		if err != nil {
			return State{}, err
		}
		want, err := m.Render(c, cards)
		if err != nil {
			return State{}, err
		}
		have, err := m.Files()
		if err != nil {
			return State{}, err
		}
		diff.WriteString(diffFiles(want, have))
	}
	if writesResolv(ctx, m, c) {
		diff.WriteString(textdiff.Unified("committed/etc/resolv.conf", "host/etc/resolv.conf",
			textdiff.Lines(resolvConf(c)), textdiff.Lines(n.readSaved("etc/resolv.conf").Content)))
	}
	want := wantedLinks(c, macs)
	if before != nil {
		now = withoutNew(now, before, want)
	}
	wanted, there := compare(want, now)
	diff.WriteString(textdiff.Unified("committed/kernel", "host/kernel", wanted, there))
	return State{Diff: diff.String(), Digest: textdiff.Digest(there)}, nil
}

// SaveNetwork reads files and kernel.
func (n *Configurator) SaveNetwork(ctx context.Context, next Config) (SavedNetwork, error) {
	s := SavedNetwork{BootID: n.BootID(), Resolv: n.readSaved("etc/resolv.conf"), Next: &next}
	m, err := n.manager(ctx, next)
	if err != nil {
		return s, err
	}
	if m != nil {
		s.Manager = m.Name()
		if s.Files, err = m.Files(); err != nil {
			return s, err
		}
		if s.Active, err = m.Active(ctx); err != nil {
			return s, err
		}
	}
	if s.Applied, err = n.applied(); err != nil {
		return s, err
	}
	macs, err := cardsByMAC()
	if err != nil {
		return s, err
	}
	now, err := kernelLinks()
	if err != nil {
		return s, err
	}
	touched := wantedLinks(next, macs)
	if s.Applied != nil {
		touched = append(touched, wantedLinks(*s.Applied, macs)...)
	}
	for _, link := range now {
		if _, ok := findLink(touched, link.Name); ok {
			s.Links = append(s.Links, link)
		}
	}
	s.Links = append(s.Links, dependents(touched, now)...)
	if s.Others, err = kernelOthers(); err != nil {
		return s, err
	}
	return s, ctx.Err()
}

// ApplyNetwork first records the settings in force, for a later rollback.
func (n *Configurator) ApplyNetwork(ctx context.Context, _ effect.Cause, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := n.NetworkSupport(ctx, c); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m, err := n.manager(ctx, c)
	if err != nil {
		return err
	}
	old, err := n.applied()
	if err != nil {
		return err
	}
	macs, err := cardsByMAC()
	if err != nil {
		return err
	}
	before, err := kernelLinks()
	if err != nil {
		return err
	}
	others, err := kernelOthers()
	if err != nil {
		return err
	}
	if err := n.writeApplied(n.BootID(), nameOfManager(m), c); err != nil {
		return err
	}
	if err := n.setResolv(ctx, m, c); err != nil {
		return err
	}
	var was []SavedLink
	if old != nil {
		was = wantedLinks(*old, macs)
	}
	if m != nil {
		err = n.applyBy(ctx, m, c, was, wantedLinks(c, macs))
	} else {
		err = applyNative(was, wantedLinks(c, macs))
	}
	if err != nil {
		return err
	}
	if err := n.settle(ctx, c, before); err != nil {
		return err
	}
	// What of others went with a link that was made anew, or with a restart of networkd, comes back. Where the new
	// configuration has no room for it, it is not wanted either.
	if err := keepDependents(dependents(append(was, wantedLinks(c, macs)...), before)); err != nil {
		return err
	}
	if err := restoreOthers(others); err != nil {
		n.Log.Warn("rules or routes of others do not fit the new network", "error", err)
	}
	return nil
}

// applyNative changes the kernel itself. Cards that are not named any more lose what they had from us.
func applyNative(was, want []SavedLink) error {
	if _, err := removeOutdated(was, want); err != nil {
		return err
	}
	all := slices.Clone(want)
	for _, o := range was {
		if _, kept := findLink(want, o.Name); !kept && o.Kind == "" {
			all = append(all, SavedLink{Name: o.Name, Up: true})
		}
	}
	return reconcile(all)
}

// settle waits until the host shows the configuration.
func (n *Configurator) settle(ctx context.Context, c Config, before []SavedLink) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	nudge := clock.Real().After(nudgeAfter)
	for good := 0; ; {
		s, err := n.readNetwork(ctx, c, before)
		if err == nil && s.Diff == "" {
			err = n.busy(ctx, c)
		}
		if err != nil || s.Diff != "" {
			good = 0
		} else if good++; good == settleReads {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("apply network configuration: %w:\n%s", effect.ErrReadBack, s.Diff), err)
		case <-nudge:
			if err := n.nudgeConfig(ctx, c); err != nil {
				return err
			}
		case <-clock.Real().After(settlePoll):
		}
	}
}

func (n *Configurator) nudgeConfig(ctx context.Context, c Config) error {
	macs, err := cardsByMAC()
	if err != nil {
		return err
	}
	m, err := n.managerNow(ctx, c)
	if m == nil {
		return err
	}
	return m.Nudge(ctx, namesOf(wantedLinks(c, macs)))
}

func namesOf(links []SavedLink) []string {
	names := make([]string, 0, len(links))
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// busy returns an error that names a link that its manager is not done with. A lease or an advertisement may never
// come, and is not waited for.
func (n *Configurator) busy(ctx context.Context, c Config) error {
	macs, err := cardsByMAC()
	if err != nil {
		return err
	}
	var names []string
	for _, i := range c.Interfaces {
		if !i.DHCP4 && !i.DHCP6 && !i.AcceptRA {
			names = append(names, nameOf(i, macs))
		}
	}
	m, err := n.managerNow(ctx, c)
	if m == nil {
		return err
	}
	for name, s := range m.Busy(ctx, names) {
		return fmt.Errorf("%s is %s %s", m.Name(), s, name)
	}
	return nil
}

// NetworkSource asks the kernel for the way.
func (n *Configurator) NetworkSource(_ context.Context, c Config, to netip.Addr) (netip.Addr, error) {
	macs, err := cardsByMAC()
	if err != nil {
		return netip.Addr{}, err
	}
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w", to, err)
	}
	over, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w", to, err)
	}
	src, _ := netip.AddrFromSlice(routes[0].Src)
	return sourceOf(c, over.Attrs().Name, src.Unmap(), to, macs), nil
}

// sourceOf prefers the address that the kernel would take, if it is one of the configuration's.
func sourceOf(c Config, over string, kernels, to netip.Addr, macs map[string]string) netip.Addr {
	for _, i := range c.Interfaces {
		if nameOf(i, macs) != over {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(i.Addresses), func(p netip.Prefix) bool { return p.Addr().Is4() != to.Is4() })
		if len(own) == 0 {
			return netip.Addr{}
		}
		if slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == kernels }) {
			return kernels
		}
		return own[0].Addr()
	}
	return netip.Addr{}
}
