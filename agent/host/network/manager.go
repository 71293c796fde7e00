package network

import (
	"context"
	"io/fs"
	"maps"
	"slices"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/netdump"
	"github.com/ingot-metal/ingot/agent/host/system"
)

// Manager is a program that configures the host's interfaces from files, at each boot too, such as NetworkManager.
// The agent writes files in its format and has it apply them. Paths are relative to the root directory.
type Manager interface {
	// Name is how records call it.
	Name() string
	// State reports whether the manager accepts orders.
	State(ctx context.Context) (ManagerState, error)
	// Has reports whether it has configured one of the interfaces.
	Has(ctx context.Context, names []string) bool
	// Dir is where our files are, and Mode what they are made with.
	Dir() string
	Mode() fs.FileMode
	// Files reads, by path, our files and those of others that a configuration may change.
	Files() (map[string]string, error)
	// Ours reports whether a file is ours, and may be removed.
	Ours(path string) bool
	// Render returns the Files of a configuration in force.
	Render(c Config, cards Cards) (map[string]string, error)
	// Before returns the Files to restore. saved is Files before the change. It must not depend on the host's cards: early
	// in a boot they may not have their names yet.
	Before(saved map[string]string) (map[string]string, error)
	// Active is what it has in force, by interface. nil: it has no such memory, and follows its files alone.
	Active(ctx context.Context) (map[string]string, error)
	// Release has it give the interfaces up, before its files change.
	Release(ctx context.Context, names []string) error
	// Read has it take notice of its files, so that it makes nothing anew that they do not name any more.
	Read(ctx context.Context) error
	// Load has it configure what its files say. Bonds and VLANs that are in the way are gone.
	Load(ctx context.Context, l Load) error
	// Busy is what it does just now at the interfaces that it is not done with, in the words of networkctl(1).
	Busy(ctx context.Context, names []string) map[string]string
	// Nudge has it configure the interfaces anew, whatever it thinks of them.
	Nudge(ctx context.Context, names []string) error
	// TellsResolver reports whether the manager passes the ordered DNS servers on, so that resolv.conf need not be
	// written.
	TellsResolver(ctx context.Context) bool
}

// Names of managers, in records.
const (
	Networkd       = "systemd-networkd"
	NetworkManager = "NetworkManager"
	Ifupdown       = "ifupdown"
)

// ManagerState is whether a manager accepts orders.
type ManagerState int

const (
	// Off is one that does not run, and need not.
	Off ManagerState = iota
	// Coming is one that starts or stops just now, and may have read its files.
	Coming
	// Running is one that takes orders.
	Running
)

// Load is an order to a manager.
type Load struct {
	// Config is the ordered configuration, and Links how the kernel shows it. In a rollback Config is nil.
	Config *Config
	Links  []SavedLink
	Cards  Cards
	// Dropped are the cards of the configuration before that are not named any more.
	Dropped []string
	// Removed are the bonds and VLANs that were deleted.
	Removed []string
	// Coming is set while the manager starts.
	Coming bool
	// Active is, on a way back, what it had in force.
	Active map[string]string
}

// StateOnBus returns the state of a manager that is a service on the system bus. systemd is asked where it is not
// there: it may be starting or stopping.
func StateOnBus(ctx context.Context, s *system.System, busName, unit string) (ManagerState, error) {
	if s.HasOwner(ctx, busName) {
		return Running, nil
	}
	ctx, cancel := context.WithTimeout(ctx, system.BusTime)
	defer cancel()
	state, err := s.Kernel.UnitState(ctx, unit)
	if err != nil || state == "inactive" || state == "failed" {
		return Off, err
	}
	return Coming, nil
}

// Cards are the host's network cards.
type Cards struct {
	ByMAC map[string]string // names
	// Permanent has the MACs that a driver knows as its card's own.
	Permanent map[string]bool
}

// readCards reads them from the kernel.
func readCards() (Cards, error) {
	macs, err := cardsByMAC()
	if err != nil {
		return Cards{}, err
	}
	list, err := netdump.Links()
	if err != nil {
		return Cards{}, err
	}
	c := Cards{ByMAC: macs, Permanent: map[string]bool{}}
	for _, link := range list {
		if mac, ok := macOf(link); ok {
			c.Permanent[mac] = true
		}
	}
	return c, nil
}

// manager chooses the manager that applies a configuration: the first that has configured one of its interfaces, or
// else the first that runs. It is nil where the agent is init: the agent configures the kernel itself there.
func (n *Configurator) manager(ctx context.Context, c Config) (Manager, error) {
	if !n.RunsSystemd() {
		return nil, nil
	}
	cards, err := readCards()
	if err != nil {
		return nil, err
	}
	names := namesOf(wantedLinks(c, cards.ByMAC))
	var first Manager
	for _, m := range n.Managers {
		if state, err := m.State(ctx); err != nil || state != Running {
			continue
		}
		if m.Has(ctx, names) {
			return m, nil
		}
		if first == nil {
			first = m
		}
	}
	if first == nil {
		return nil, effect.Refuse(effect.ErrNotWired, effect.ReasonNetworkNotWired,
			"neither systemd-networkd nor NetworkManager runs on this host, and ifupdown does not configure it")
	}
	return first, nil
}

// managerOf finds the manager of a record; "" is of a version that knew networkd only.
func (n *Configurator) managerOf(name string) Manager {
	if !n.RunsSystemd() {
		return nil
	}
	if name == "" {
		name = Networkd
	}
	for _, m := range n.Managers {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// applyBy has a manager configure the interfaces. First the manager releases them, and outdated bonds and VLANs are
// removed, since no manager changes one that it has made.
func (n *Configurator) applyBy(ctx context.Context, m Manager, c Config, was, want []SavedLink) error {
	cards, err := readCards()
	if err != nil {
		return err
	}
	if _, err := m.Render(c, cards); err != nil {
		return err
	}
	if err := m.Release(ctx, releaseOrder(was, want)); err != nil {
		return err
	}
	files, err := m.Render(c, cards) // of what others have written meanwhile
	if err != nil {
		return err
	}
	if err := n.writeFiles(m, files); err != nil {
		return err
	}
	if err := m.Read(ctx); err != nil {
		return err
	}
	removed, err := removeOutdated(was, want)
	if err != nil {
		return err
	}
	return m.Load(ctx, Load{Config: &c, Links: want, Cards: cards, Dropped: droppedCards(was, want), Removed: removed})
}

// releaseOrder names the links, those on top of others first.
func releaseOrder(lists ...[]SavedLink) []string {
	var names []string
	for _, on := range []bool{true, false} {
		for _, l := range slices.Concat(lists...) {
			if (l.Parent != "") == on && !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

func droppedCards(was, want []SavedLink) []string {
	var names []string
	for _, l := range was {
		if _, kept := findLink(want, l.Name); !kept && l.Kind == "" {
			names = append(names, l.Name)
		}
	}
	return names
}

// goneBack reports whether a manager's files and memory are as they were saved, so that it needs no order.
func goneBack(ctx context.Context, m Manager, s SavedNetwork, before map[string]string) bool {
	if s.Active == nil {
		return false
	}
	files, err := m.Files()
	if err != nil || !maps.Equal(files, before) {
		return false
	}
	active, err := m.Active(ctx)
	return err == nil && maps.Equal(active, s.Active)
}

// ClearAddresses takes away the addresses and routes of the named interfaces that do not expire.
func ClearAddresses(names []string) error {
	var bare []SavedLink
	now, err := kernelLinks()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, there := findLink(now, name); there {
			bare = append(bare, SavedLink{Name: name})
		}
	}
	return inPhases(bare, setAddresses, setRoutes)
}

// Links is how the kernel is to show the configuration.
func (c Config) Links(cards Cards) []SavedLink { return wantedLinks(c, cards.ByMAC) }

// NameOf is the interface's name in the kernel; a card that is not there keeps its MAC for a name.
func (c Cards) NameOf(i Interface) string { return nameOf(i, c.ByMAC) }

// Bond returns the bond with its members by name, sorted.
func (c Cards) Bond(b Bond) *Bond { return namedBond(b, c.ByMAC) }
