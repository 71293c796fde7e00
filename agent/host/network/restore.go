package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
	"github.com/ingot-metal/ingot/internal/clock"
)

// RestoreNetwork goes back. On another boot than that of the change, only files are left of it. Where they cannot be
// written, or networkd does not read them, the kernel is restored all the same. After an error something is left to do.
func (n *Configurator) RestoreNetwork(ctx context.Context, _ effect.Cause, s SavedNetwork) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	undone := s.Next
	if undone == nil { // saved by an older version
		var err error
		if undone, err = n.applied(); err != nil {
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
	m := n.managerOf(s.Manager)
	var state ManagerState
	var stateErr error
	if m != nil {
		state, stateErr = m.State(ctx)
	}
	back, leftErr := n.before(m, s)
	// One that is about to come may have read the files of the change.
	running, coming := state == Running, state == Coming
	told := m != nil && (running || coming) && !goneBack(ctx, m, s, back)
	if told && leftErr == nil {
		leftErr = m.Release(ctx, releaseOrder(made))
	}
	leftErr = errors.Join(leftErr, n.restoreFiles(m, s, back), stateErr)
	if told && leftErr == nil {
		leftErr = m.Read(ctx)
	}
	want, others := s.Links, s.Others
	sameBoot := s.BootID == n.BootID()
	if !sameBoot && !running && !coming {
		return leftErr
	}
	if !sameBoot {
		// networkd has read the files of the change when it started: the first try to go back came too early, or in
		// vain.
		if want, err = linksOf(s.Applied); err != nil {
			return errors.Join(leftErr, err)
		}
		want = withSavedMTU(want, s.Links, made)
		others = SavedOthers{} // they went with the kernel that had them
	}
	freed := freedCards(s.Links, made, want)
	if !sameBoot {
		now, err := kernelLinks()
		if err != nil {
			return errors.Join(leftErr, err)
		}
		want = append(want, atRest(withoutActive(freed, s.Active), made, now)...)
	}
	removed := outdated(made, want)
	if err := removeLinks(removed); err != nil {
		return errors.Join(leftErr, err)
	}
	// What networkd would read while files are left over is still the change.
	hangs := false
	if told && leftErr == nil {
		leftErr = m.Load(ctx, Load{Links: made, Removed: removed, Coming: coming, Active: s.Active})
		hangs = leftErr != nil
	}
	w := way{saved: want, made: made, others: others, late: late, all: leftErr != nil}
	if running && !hangs {
		w.manager = m
	}
	if err := n.restoreLinks(ctx, w); err != nil || sameBoot {
		return errors.Join(leftErr, err)
	}
	return errors.Join(leftErr, restoreMTU(freed))
}

// withoutActive leaves out the cards that their manager configures again, as it did before the change.
func withoutActive(cards []SavedLink, active map[string]string) []SavedLink {
	return slices.DeleteFunc(slices.Clone(cards), func(l SavedLink) bool { return active[l.Name] != "" })
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

// withSavedMTU returns the links of the previous configuration with their saved MTU. It sets the MTU where that
// configuration has none and the change had set one, on the link or below its VLAN: networkd never resets an MTU. A
// link comes before the VLANs whose MTU it limits.
func withSavedMTU(want, saved, made []SavedLink) []SavedLink {
	for i, w := range want {
		m, _ := findLink(made, w.Name)       // one that the change does not name has no MTU of it
		below, _ := findLink(made, w.Parent) // nor has a link without a parent
		if s, known := findLink(saved, w.Name); known && w.MTU == 0 && (m.MTU != 0 || below.MTU != 0) {
			want[i].MTU = s.MTU
		}
	}
	slices.SortStableFunc(
		want,
		func(a, b SavedLink) int { return cmp.Compare(min(len(a.Parent), 1), min(len(b.Parent), 1)) },
	)
	return want
}

// atRest is how the kernel shows freed cards when the change is undone on another boot: without addresses or routes,
// and down unless they were up before or others have put addresses there. A networkd that had read the files of the
// change may configure them late, and leaves them configured. A card that is gone or in a bond stays as it is.
func atRest(freed, made, now []SavedLink) []SavedLink {
	var cards []SavedLink
	for _, c := range freed {
		is, there := findLink(now, c.Name)
		if !there || is.Master != "" {
			continue
		}
		m, _ := findLink(made, c.Name)
		others := slices.ContainsFunc(is.Addresses, func(a netip.Prefix) bool { return !slices.Contains(m.Addresses, a) })
		cards = append(cards, SavedLink{Name: c.Name, Kind: is.Kind, MTU: c.MTU, Up: is.Up && (c.Up || others)})
	}
	return cards
}

// restoreMTU sets the saved MTU of cards, in bytes. A card that is gone needs none.
func restoreMTU(cards []SavedLink) error {
	var errs []error
	for _, c := range cards {
		l, err := netlink.LinkByName(c.Name)
		if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
			continue
		}
		if err == nil && l.Attrs().MTU != c.MTU {
			err = netlink.LinkSetMTU(l, c.MTU)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set the MTU of %s to %d: %w", c.Name, c.MTU, err))
		}
	}
	return errors.Join(errs...)
}

// linksOf is how the kernel shows a configuration; nil has none.
func linksOf(c *Config) ([]SavedLink, error) {
	if c == nil {
		return nil, nil
	}
	macs, err := cardsByMAC()
	if err != nil {
		return nil, err
	}
	return wantedLinks(*c, macs), nil
}

// way is the way back of the kernel.
type way struct {
	saved, made []SavedLink
	others      SavedOthers
	// late is what others have added since the change began.
	late SavedNetwork
	// all is set when no manager helps: it does not run, or does not read the old files.
	all bool
	// manager can be asked what it still does; nil: there is none to ask.
	manager Manager
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

// lateComers reads foreign additions since the change began: networkd drops unknown addresses and routes of interfaces
// that it configures anew.
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
			Name: l.Name, Addresses: l.Addresses[len(was.Addresses):], Shown: l.Shown, Routes: l.Routes[len(was.Routes):],
		})
	}
	return late, nil
}

// restoreLinks waits until the interfaces are as they were, and makes the changes that the manager does not make.
// Foreign additions since then stay where there is room for them. The end is one that stays when networkd is done.
func (n *Configurator) restoreLinks(ctx context.Context, w way) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	nudge, patience := clock.Real().After(nudgeAfter), clock.Real().After(busyTime)
	for good, waited := 0, false; ; {
		working, err := n.helpLinks(ctx, w)
		now, readErr := kernelLinks()
		wanted, there := compare(keepForeign(w.saved, w.made, now), now)
		diff := textdiff.Unified("saved/kernel", "host/kernel", wanted, append(there, w.unfit(now)...))
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
			return errors.Join(fmt.Errorf("restore network: %w:\n%s", effect.ErrReadBack, diff), err)
		case <-nudge:
			if !w.all && diff != "" && w.manager != nil {
				_ = w.manager.Nudge(ctx, namesOf(w.saved)) // the diff decides
			}
		case <-patience:
			waited = true
		case <-clock.Real().After(settlePoll):
		}
	}
}

// addLate restores the foreign additions of links. There may be no room for it any more.
func addLate(late, now []SavedLink) {
	for _, l := range late {
		is, there := findLink(now, l.Name)
		if !there || len(l.Addresses)+len(l.Routes) == 0 {
			continue
		}
		want := is
		want.Addresses, want.Routes = slices.Concat(is.Addresses, l.Addresses), slices.Concat(is.Routes, l.Routes)
		want.Shown = l.Shown
		_ = setAddresses(want, now) // the next read shows the missing ones
		_ = setRoutes(want, now)    // likewise
	}
}

// withoutNew leaves out addresses and routes that are in neither before nor want.
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

// keepForeign adds the present addresses and routes to the saved links, but for those that the change has made.
func keepForeign(saved, made, now []SavedLink) []SavedLink {
	out := slices.Clone(saved)
	for i, w := range out {
		is, _ := findLink(now, w.Name)
		m, _ := findLink(made, w.Name)
		w.Addresses, w.Routes = slices.Clone(w.Addresses), slices.Clone(w.Routes)
		w.Shown = slices.Concat(w.Shown, is.Shown)
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

// helpLinks makes the changes that networkd does not make. It restores the links that networkd does not manage or is
// done with, and the MTU, which networkd never resets. It reports whether networkd still works.
func (n *Configurator) helpLinks(ctx context.Context, w way) (working bool, err error) {
	now, err := kernelLinks()
	if err != nil {
		return false, err
	}
	if err := removeLinks(w.unfit(now)); err != nil {
		return false, err
	}
	var states map[string]string
	if w.manager != nil {
		states = w.manager.Busy(ctx, namesOf(w.saved))
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
