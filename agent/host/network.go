package host

import (
	"context"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// CapNetwork: interfaces can be configured.
const CapNetwork = "network"

// Network is the part of a Host that configures its interfaces.
//
// Only what a NetworkConfig names is ours. Files of others are never touched, and interfaces of others only as far as
// a bond of ours takes them.
type Network interface {
	// NetworkSupport gives the ErrNotWired refusal of a host that cannot apply the configuration, and nil else. It
	// changes nothing.
	NetworkSupport(ctx context.Context, c NetworkConfig) error
	// Network reads back how the host differs from the configuration. With before, the state that a change of ours
	// began with, addresses and routes that came since and that nobody has ordered are somebody else's, and no
	// difference.
	Network(ctx context.Context, c NetworkConfig, before *SavedNetwork) (NetworkState, error)
	// SaveNetwork reads what RestoreNetwork needs to come back to now, once next was applied.
	SaveNetwork(ctx context.Context, next NetworkConfig) (SavedNetwork, error)
	// ApplyNetwork makes the configuration the whole of what is ours, and waits until the kernel shows it or ctx ends.
	ApplyNetwork(ctx context.Context, e Effect, c NetworkConfig) error
	// RestoreNetwork goes back to what was saved, and waits likewise.
	RestoreNetwork(ctx context.Context, e Effect, s SavedNetwork) error
	// NetworkSource is the address of the configuration that a new connection to the destination must come from, to
	// prove it. It is the zero Addr where the way there does not lead over an interface with an address of ours.
	NetworkSource(ctx context.Context, c NetworkConfig, to netip.Addr) (netip.Addr, error)
}

// Watchdog is a host that undoes an unproven change even when the process that made it is gone. A host without one is
// rolled back by its executor only.
type Watchdog interface {
	// Guard writes durably what to go back to, and makes sure that it happens at the deadline unless CommitGuard comes
	// first. It must return before the first change is made.
	Guard(ctx context.Context, g Guard) error
	// CommitGuard makes the change stay. ErrGuardLost says that the deadline came first: the change is undone or about
	// to be, and must count as failed.
	CommitGuard(ctx context.Context, commandID string) error
	// RollBackGuard goes back now. One that was rolled back already is left alone; one that is committed is an error.
	RollBackGuard(ctx context.Context, commandID string) error
	// Guarded reads the last guard, whatever has become of it. nil: there was none.
	Guarded(ctx context.Context) (*Guard, error)
}

// Guard is a change that has not proved itself, and the way back from it.
type Guard struct {
	CommandID   string     `json:"command_id"`
	OperationID string     `json:"operation_id,omitempty"`
	MachineID   string     `json:"machine_id,omitempty"`
	State       GuardState `json:"state"`
	// BootID and Deadline say when to go back: at that time since boot (CLOCK_BOOTTIME), or on any other boot.
	BootID   string        `json:"boot_id"`
	Deadline time.Duration `json:"deadline_boottime_ns"`
	// Hostname is restored unless empty.
	Hostname string `json:"hostname,omitempty"`
	// SetsFirewall says that the change touches the firewall; Firewall is what was there before, nil for none.
	SetsFirewall bool            `json:"sets_firewall,omitempty"`
	Firewall     *FirewallPolicy `json:"firewall,omitempty"`
	// NextFirewall is what the change sets. A boot loads it once the change is committed, and not before.
	NextFirewall *FirewallPolicy `json:"next_firewall,omitempty"`
	// Network is restored unless nil.
	Network *SavedNetwork `json:"network,omitempty"`
	// Error is why the last try to go back has failed.
	Error string `json:"error,omitempty"`
}

// GuardState says what has become of a guarded change.
type GuardState string

// The states of a guard. Pending leads to one of the others, which are final.
const (
	GuardPending    GuardState = "pending"
	GuardCommitted  GuardState = "committed"
	GuardRolledBack GuardState = "rolled_back"
	// GuardAbandoned: an operator on the host has kept it as it was then, neither proven nor rolled back.
	GuardAbandoned GuardState = "abandoned"
)

// Due says whether a pending change has had its time.
func (g Guard) Due(bootID string, sinceBoot time.Duration) bool {
	return g.State == GuardPending && (g.BootID != bootID || sinceBoot >= g.Deadline)
}

// Parts names what a rollback restores.
func (g Guard) Parts() []string {
	var parts []string
	if g.Network != nil {
		parts = append(parts, "interfaces")
	}
	if g.Hostname != "" {
		parts = append(parts, "host name")
	}
	if g.SetsFirewall {
		parts = append(parts, "firewall")
	}
	return parts
}

// NetworkConfig is everything that Ingot configures of a host's network. The zero value is nothing.
type NetworkConfig struct {
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Interface is a card, a bond (with Bond) or a VLAN (with VLAN).
type Interface struct {
	// Name is that of a bond or VLAN to make, or of a card to find; a card may be found by MAC alone.
	Name      string         `json:"name,omitempty"`
	MAC       string         `json:"mac,omitempty"` // lower case with colons; the permanent one
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Gateway   netip.Addr     `json:"gateway,omitzero"`
	Routes    []Route        `json:"routes,omitempty"`
	DNS       []netip.Addr   `json:"dns,omitempty"`
	Search    []string       `json:"search,omitempty"`
	MTU       int            `json:"mtu,omitempty"` // 0: left alone
	DHCP4     bool           `json:"dhcp4,omitempty"`
	DHCP6     bool           `json:"dhcp6,omitempty"`
	AcceptRA  bool           `json:"accept_ra,omitempty"`
	Bond      *Bond          `json:"bond,omitempty"`
	VLAN      *VLAN          `json:"vlan,omitempty"`
}

// Route is a static route. An invalid Via means that the destination is on the link.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via,omitzero"`
	Metric      uint32       `json:"metric,omitempty"` // 0: the kernel's default
	// No configuration of ours has these four; they are read of others' routes, so that those come back as they were.
	Source netip.Addr `json:"source,omitzero"`
	MTU    int        `json:"mtu,omitempty"` // 0: the link's
	OnLink bool       `json:"on_link,omitempty"`
	// Protocol says who set it (rtnetlink(7), rtm_protocol); 0: static. It is no part of a comparison.
	Protocol int `json:"protocol,omitempty"`
}

// Bond is several cards as one interface.
type Bond struct {
	Members    []string      `json:"members"` // names or MACs
	Mode       string        `json:"mode"`    // as the kernel names it, such as 802.3ad
	MIIMon     time.Duration `json:"miimon_ns"`
	LACPFast   bool          `json:"lacp_fast,omitempty"`
	HashPolicy string        `json:"hash_policy,omitempty"`
}

// VLAN is an interface that sends tagged frames over another.
type VLAN struct {
	ID     int    `json:"id"`
	Parent string `json:"parent"` // name or MAC of another Interface of the configuration
}

// NetworkState is what was read back.
type NetworkState struct {
	// Diff is how files and kernel differ from the configuration, as a unified diff; empty where they do not.
	Diff string `json:"diff,omitempty"`
	// Digest names what the kernel shows of the interfaces of the configuration.
	Digest string `json:"digest"`
}

// SavedNetwork is how the network was. It is plain data: it can be restored by another process, or on another boot.
type SavedNetwork struct {
	// BootID is of the boot that Links was read on: on another, the kernel has forgotten the change by itself.
	BootID string `json:"boot_id"`
	// Files are all files of ours below /etc/systemd/network, by name.
	Files  map[string]string `json:"files,omitempty"`
	Resolv SavedFile         `json:"resolv"`
	// Links are those that the configuration in force and the next one name, and those that depend on them.
	Links []SavedLink `json:"links,omitempty"`
	// Others is what else may go with a change, of somebody else.
	Others SavedOthers `json:"others,omitzero"`
	// Applied is the configuration that was in force, whether or not it had proved itself. nil: none.
	Applied *NetworkConfig `json:"applied,omitempty"`
	// Next is the configuration that is to be undone: what else there is on its interfaces is somebody else's.
	Next *NetworkConfig `json:"next,omitempty"`
}

// SavedFile is a file, a link to one, or its absence.
type SavedFile struct {
	Exists  bool   `json:"exists"`
	Target  string `json:"target,omitempty"` // of a symbolic link
	Content string `json:"content,omitempty"`
}

// SavedLink is an interface as the kernel showed it.
type SavedLink struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"` // device, bond, vlan, veth, …
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Master    string         `json:"master,omitempty"`
	Parent    string         `json:"parent,omitempty"`  // of a VLAN
	VLANID    int            `json:"vlan_id,omitempty"` // of a VLAN
	Bond      *Bond          `json:"bond,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // those that do not expire
	// Shown are the same addresses as the kernel's library reads them. A prefix has no broadcast, peer, label or scope.
	Shown  []netlink.Addr `json:"shown,omitempty"`
	Routes []Route        `json:"routes,omitempty"` // static ones of the main table
}
