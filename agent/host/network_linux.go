package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// settleTime is how long a new configuration may take to show in the kernel: IPv6 addresses wait a second for their
	// duplicates, bonds for their members.
	settleTime = 15 * time.Second
	settlePoll = 100 * time.Millisecond
	// settleReads in a row must be good: networkd begins a little after it was told to.
	settleReads = 2
	// nudgeAfter is when networkd is told again to configure each interface, for what a reload does not notice.
	nudgeAfter = 2 * time.Second
	// busyTime is how long a way back waits for networkd to be done: a lease or an advertisement may never come.
	busyTime = 5 * time.Second
)

// NetworkSupport: systemd-networkd where systemd is init, the kernel's own interface where we are.
func (l *Linux) NetworkSupport(ctx context.Context, c NetworkConfig) error {
	if !l.has(unix.CAP_NET_ADMIN) {
		return refuse(ErrNotWired, ReasonNetworkNotWired, "configuring interfaces needs CAP_NET_ADMIN")
	}
	if l.systemd() {
		if !l.networkd(ctx) {
			return refuse(ErrNotWired, ReasonNetworkNotWired, "systemd-networkd does not run on this host")
		}
		return nil
	}
	for _, i := range c.Interfaces {
		if i.DHCP4 || i.DHCP6 {
			return refuse(ErrNotWired, ReasonNetworkNotWired, "%s: a host without systemd-networkd has no DHCP client for it", i.key())
		}
	}
	return nil
}

// Network reads back files and kernel.
func (l *Linux) Network(ctx context.Context, c NetworkConfig, before *SavedNetwork) (NetworkState, error) {
	if before == nil {
		return l.readNetwork(ctx, c, nil)
	}
	return l.readNetwork(ctx, c, before.Links)
}

// readNetwork compares with the configuration; before is nil, or what the named links showed when a change began.
func (l *Linux) readNetwork(ctx context.Context, c NetworkConfig, before []SavedLink) (NetworkState, error) {
	if err := ctx.Err(); err != nil {
		return NetworkState{}, err
	}
	macs, err := cardsByMAC()
	if err != nil {
		return NetworkState{}, err
	}
	now, err := kernelLinks()
	if err != nil {
		return NetworkState{}, err
	}
	var diff strings.Builder
	if l.systemd() {
		want, err := l.wantedFiles(c)
		if err != nil {
			return NetworkState{}, err
		}
		have, err := l.networkFiles()
		if err != nil {
			return NetworkState{}, err
		}
		diff.WriteString(diffFiles(want, have))
	}
	if l.writesResolv(ctx, c) {
		diff.WriteString(UnifiedDiff("committed/etc/resolv.conf", "host/etc/resolv.conf",
			textLines(resolvConf(c)), textLines(l.readSaved("etc/resolv.conf").Content)))
	}
	want := c.wanted(macs)
	if before != nil {
		now = withoutNew(now, before, want)
	}
	wanted, there := compare(want, now)
	diff.WriteString(UnifiedDiff("committed/kernel", "host/kernel", wanted, there))
	return NetworkState{Diff: diff.String(), Digest: digestLines(there)}, nil
}

// SaveNetwork reads files and kernel.
func (l *Linux) SaveNetwork(ctx context.Context, next NetworkConfig) (SavedNetwork, error) {
	s := SavedNetwork{BootID: l.bootID(), Resolv: l.readSaved("etc/resolv.conf"), Next: &next}
	var err error
	if s.Files, err = l.networkFiles(); err != nil {
		return s, err
	}
	if s.Applied, err = l.applied(); err != nil {
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
	touched := next.wanted(macs)
	if s.Applied != nil {
		touched = append(touched, s.Applied.wanted(macs)...)
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

// ApplyNetwork writes down first what is in force, for whoever has to undo it.
func (l *Linux) ApplyNetwork(ctx context.Context, _ Effect, c NetworkConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := l.NetworkSupport(ctx, c); err != nil {
		return err
	}
	l.network.Lock()
	defer l.network.Unlock()
	old, err := l.applied()
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
	if err := l.writeApplied(l.bootID(), c); err != nil {
		return err
	}
	if err := l.setResolv(ctx, c); err != nil {
		return err
	}
	var was []SavedLink
	if old != nil {
		was = old.wanted(macs)
	}
	if l.systemd() {
		err = l.applyNetworkd(ctx, c, was, c.wanted(macs))
	} else {
		err = applyNative(was, c.wanted(macs))
	}
	if err != nil {
		return err
	}
	if err := l.settle(ctx, c, before); err != nil {
		return err
	}
	// What of others went with a link that was made anew, or with a restart of networkd, comes back. Where the new
	// configuration has no room for it, it is not wanted either.
	if err := keepDependents(dependents(append(was, c.wanted(macs)...), before)); err != nil {
		return err
	}
	_ = restoreOthers(others)
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
func (l *Linux) settle(ctx context.Context, c NetworkConfig, before []SavedLink) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	nudge := clock.Real().After(nudgeAfter)
	for good := 0; ; {
		s, err := l.readNetwork(ctx, c, before)
		if err == nil && s.Diff == "" {
			err = l.busy(ctx, c)
		}
		if err != nil || s.Diff != "" {
			good = 0
		} else if good++; good == settleReads {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("apply network configuration: %w:\n%s", ErrReadBack, s.Diff), err)
		case <-nudge:
			if err := l.nudgeConfig(ctx, c); err != nil {
				return err
			}
		case <-clock.Real().After(settlePoll):
		}
	}
}

func (l *Linux) nudgeConfig(ctx context.Context, c NetworkConfig) error {
	macs, err := cardsByMAC()
	if err != nil {
		return err
	}
	return l.nudge(ctx, namesOf(c.wanted(macs)))
}

func namesOf(links []SavedLink) []string {
	names := make([]string, 0, len(links))
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// RestoreNetwork goes back. On another boot than that of the change, only files are left of it. Where they cannot be
// written, or networkd does not read them, the kernel is restored all the same. The error says that something is left
// to do.
func (l *Linux) RestoreNetwork(ctx context.Context, _ Effect, s SavedNetwork) error {
	l.network.Lock()
	defer l.network.Unlock()
	undone := s.Next
	if undone == nil { // saved by an older version
		var err error
		if undone, err = l.applied(); err != nil {
			return err
		}
	}
	made, err := linksOf(undone)
	if err != nil {
		return err
	}
	late, err := lateComers(s, made)
	if err != nil {
		return err
	}
	leftErr := l.restoreFiles(s)
	want, others := s.Links, s.Others
	sameBoot, running := s.BootID == l.bootID(), l.systemd() && l.networkd(ctx)
	// One that is about to come may have read the files of the change.
	coming := false
	if l.systemd() && !running {
		var stateErr error
		coming, stateErr = l.networkdComes(ctx)
		leftErr = errors.Join(leftErr, stateErr)
	}
	if !sameBoot && !running && !coming {
		return leftErr
	}
	if !sameBoot {
		// networkd has read the files of the change when it started: the first try to go back came too early, or in
		// vain.
		if want, err = linksOf(s.Applied); err != nil {
			return errors.Join(leftErr, err)
		}
		others = SavedOthers{} // they went with the kernel that had them
	}
	removed := outdated(made, want)
	if err := removeLinks(removed); err != nil {
		return errors.Join(leftErr, err)
	}
	// What networkd would read while files are left over is still the change.
	hangs := false
	if leftErr == nil && (running || coming) {
		leftErr = l.reload(ctx, removed, coming)
		hangs = leftErr != nil
	}
	back := way{saved: want, made: made, others: others, late: late, all: leftErr != nil, unasked: hangs || !running}
	if err := l.restoreLinks(ctx, back); err != nil || sameBoot {
		return errors.Join(leftErr, err)
	}
	return errors.Join(leftErr, restoreMTU(freedCards(s.Links, made, want)))
}

// freedCards returns the saved cards that the change has named and that the configuration before it does not name. A
// card keeps the MTU of a bond that it has left.
func freedCards(saved, made, want []SavedLink) []SavedLink {
	return slices.DeleteFunc(slices.Clone(saved), func(l SavedLink) bool {
		_, named := findLink(made, l.Name)
		_, still := findLink(want, l.Name)
		return !named || still || l.Bond != nil || l.VLANID != 0
	})
}

// restoreMTU gives cards their saved MTU in bytes. A card that is gone needs none.
func restoreMTU(cards []SavedLink) error {
	var errs []error
	for _, c := range cards {
		l, err := netlink.LinkByName(c.Name)
		if err != nil || l.Attrs().MTU == c.MTU {
			continue
		}
		if err := netlink.LinkSetMTU(l, c.MTU); err != nil {
			errs = append(errs, fmt.Errorf("set the MTU of %s to %d: %w", c.Name, c.MTU, err))
		}
	}
	return errors.Join(errs...)
}

// linksOf is how the kernel shows a configuration; nil has none.
func linksOf(c *NetworkConfig) ([]SavedLink, error) {
	if c == nil {
		return nil, nil
	}
	macs, err := cardsByMAC()
	if err != nil {
		return nil, err
	}
	return c.wanted(macs), nil
}

// way is the way back of the kernel.
type way struct {
	saved, made []SavedLink
	others      SavedOthers
	// late is what others have added since the change began.
	late SavedNetwork
	// all says that nobody helps: networkd does not run, or does not read the old files.
	all bool
	// unasked says that networkd cannot be asked what it still does.
	unasked bool
}

// unfit names the bonds and VLANs that are there, of those that were saved or made, and that were not there or were
// others. A networkd that still has the files of the change makes them again.
func (w way) unfit(now []SavedLink) []string {
	known := slices.DeleteFunc(slices.Clone(now), func(l SavedLink) bool {
		_, saved := findLink(w.saved, l.Name)
		_, made := findLink(w.made, l.Name)
		return !saved && !made
	})
	return outdated(known, w.saved)
}

// lateComers reads what somebody else has added since the change began: networkd drops what it does not know of
// interfaces that it configures anew.
func lateComers(s SavedNetwork, made []SavedLink) (SavedNetwork, error) {
	now, err := kernelLinks()
	if err != nil {
		return SavedNetwork{}, err
	}
	others, err := kernelOthers()
	if err != nil {
		return SavedNetwork{}, err
	}
	late := SavedNetwork{Others: others}
	for _, l := range keepForeign(s.Links, made, now) {
		was, _ := findLink(s.Links, l.Name)
		late.Links = append(late.Links, SavedLink{
			Name: l.Name, Addresses: l.Addresses[len(was.Addresses):], Routes: l.Routes[len(was.Routes):],
		})
	}
	return late, nil
}

// restoreLinks waits until the interfaces are as they were, and does what nobody else does. What neither was there nor
// was made by the change came from somebody else meanwhile, and stays where there is room for it. The end is one that
// stays when networkd is done.
func (l *Linux) restoreLinks(ctx context.Context, w way) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	nudge, patience := clock.Real().After(nudgeAfter), clock.Real().After(busyTime)
	for good, waited := 0, false; ; {
		working, err := l.helpLinks(ctx, w)
		now, readErr := kernelLinks()
		wanted, there := compare(keepForeign(w.saved, w.made, now), now)
		diff := UnifiedDiff("saved/kernel", "host/kernel", wanted, append(there, w.unfit(now)...))
		if err = errors.Join(err, readErr); err == nil && diff == "" {
			err = restoreOthers(w.others)
			_ = restoreOthers(w.late.Others) // there may be no room for it any more
		}
		if err != nil || diff != "" || working && !waited {
			good = 0
		} else if good++; good == settleReads {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("restore network: %w:\n%s", ErrReadBack, diff), err)
		case <-nudge:
			if !w.all && diff != "" {
				_ = l.nudge(ctx, namesOf(w.saved)) // the diff decides
			}
		case <-patience:
			waited = true
		case <-clock.Real().After(settlePoll):
		}
	}
}

// addLate gives links back what others have added to them. There may be no room for it any more.
func addLate(late, now []SavedLink) {
	for _, l := range late {
		is, there := findLink(now, l.Name)
		if !there || len(l.Addresses)+len(l.Routes) == 0 {
			continue
		}
		want := is
		want.Addresses, want.Routes = slices.Concat(is.Addresses, l.Addresses), slices.Concat(is.Routes, l.Routes)
		_ = setAddresses(want, now)
		_ = setRoutes(want, now)
	}
}

// withoutNew leaves out addresses and routes that came since before, and that nobody wants.
func withoutNew(now, before, want []SavedLink) []SavedLink {
	out := slices.Clone(now)
	for i, l := range out {
		was, _ := findLink(before, l.Name)
		w, _ := findLink(want, l.Name)
		l.Addresses = slices.DeleteFunc(slices.Clone(l.Addresses), func(a netip.Prefix) bool {
			return !slices.Contains(was.Addresses, a) && !slices.Contains(w.Addresses, a)
		})
		l.Routes = slices.DeleteFunc(slices.Clone(l.Routes), func(r Route) bool {
			same := func(o Route) bool { return o.normal() == r.normal() }
			return !slices.ContainsFunc(was.Routes, same) && !slices.ContainsFunc(w.Routes, same)
		})
		out[i] = l
	}
	return out
}

// keepForeign adds to the saved links what is there now of addresses and routes, but for those that the change has
// made.
func keepForeign(saved, made, now []SavedLink) []SavedLink {
	out := slices.Clone(saved)
	for i, w := range out {
		is, _ := findLink(now, w.Name)
		m, _ := findLink(made, w.Name)
		w.Addresses, w.Routes = slices.Clone(w.Addresses), slices.Clone(w.Routes)
		for _, a := range is.Addresses {
			if !slices.Contains(w.Addresses, a) && !slices.Contains(m.Addresses, a) {
				w.Addresses = append(w.Addresses, a)
			}
		}
		for _, r := range is.Routes {
			same := func(o Route) bool { return o.normal() == r.normal() }
			if !slices.ContainsFunc(w.Routes, same) && !slices.ContainsFunc(m.Routes, same) {
				w.Routes = append(w.Routes, r)
			}
		}
		out[i] = w
	}
	return out
}

// helpLinks does what networkd does not: everything for the links that it leaves alone or is done with, which are what
// others have put there, and the MTU, which it never sets back. It reports whether networkd still works.
func (l *Linux) helpLinks(ctx context.Context, w way) (working bool, err error) {
	now, err := kernelLinks()
	if err != nil {
		return false, err
	}
	if err := removeLinks(w.unfit(now)); err != nil {
		return false, err
	}
	var states map[string]string
	if !w.unasked {
		states = l.adminStates(ctx, namesOf(w.saved))
	}
	var ours []SavedLink
	for _, s := range keepForeign(w.saved, w.made, now) {
		busy := slices.Contains([]string{"configuring", "pending", "initialized"}, states[s.Name])
		working = working || busy
		if w.all || !busy {
			ours = append(ours, s)
		}
	}
	err = reconcile(ours)
	addLate(w.late.Links, now)
	return working, err
}

// busy returns an error that names a link that networkd is not done with. A lease or an advertisement may never come,
// and is not waited for.
func (l *Linux) busy(ctx context.Context, c NetworkConfig) error {
	macs, err := cardsByMAC()
	if err != nil {
		return err
	}
	var names []string
	for _, i := range c.Interfaces {
		if !i.DHCP4 && !i.DHCP6 && !i.AcceptRA {
			names = append(names, i.nameOf(macs))
		}
	}
	for name, s := range l.adminStates(ctx, names) {
		if s != "configured" && s != "unmanaged" {
			return fmt.Errorf("systemd-networkd is %s %s", s, name)
		}
	}
	return nil
}

// NetworkSource asks the kernel for the way.
func (l *Linux) NetworkSource(_ context.Context, c NetworkConfig, to netip.Addr) (netip.Addr, error) {
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
	return c.source(over.Attrs().Name, src.Unmap(), to, macs), nil
}

// source prefers the address that the kernel would take, if it is one of the configuration's.
func (c NetworkConfig) source(over string, kernels, to netip.Addr, macs map[string]string) netip.Addr {
	for _, i := range c.Interfaces {
		if i.nameOf(macs) != over {
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
