// Package network configures the machine's interfaces: by files for the program that manages them, or in the kernel
// where the agent is init. /etc/ingot/network/applied.json has the configuration that is in force.
package network

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// Config is everything that Ingot configures of a host's network. The zero value is nothing.
type Config struct {
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
	// Protocol is the program that set it (rtnetlink(7), rtm_protocol); 0: static. It is no part of a comparison.
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

// LACPRate is how often LACP asks for its partner's state, in the kernel's words.
func (b Bond) LACPRate() string {
	if b.LACPFast {
		return "fast"
	}
	return "slow"
}

// VLAN is an interface that sends tagged frames over another.
type VLAN struct {
	ID     int    `json:"id"`
	Parent string `json:"parent"` // name or MAC of another Interface of the configuration
}

// State is what was read back.
type State struct {
	// Diff is how files and kernel differ from the configuration, as a unified diff; empty where they do not.
	Diff string `json:"diff,omitempty"`
	// Digest names what the kernel shows of the interfaces of the configuration.
	Digest string `json:"digest"`
}

// SavedNetwork is how the network was. It is plain data: it can be restored by another process, or on another boot.
type SavedNetwork struct {
	// BootID is of the boot that Links was read on: on another, the kernel has forgotten the change by itself.
	BootID string `json:"boot_id"`
	// Manager is the program that was ordered to change. "": systemd-networkd, or none where the agent is init.
	Manager string `json:"manager,omitempty"`
	// Files are the manager's files of ours and those of others that a change may change, by path below the root. Older
	// records have networkd's by name.
	Files map[string]string `json:"files,omitempty"`
	// Active is what the manager had in force, by interface.
	Active map[string]string `json:"active,omitempty"`
	Resolv SavedFile         `json:"resolv"`
	// Links are those that the configuration in force and the next one name, and those that depend on them.
	Links []SavedLink `json:"links,omitempty"`
	// Others has the foreign settings that a change may remove.
	Others SavedOthers `json:"others,omitzero"`
	// Applied is the configuration that was in force, whether or not it had proved itself. nil: none.
	Applied *Config `json:"applied,omitempty"`
	// Next is the configuration to undo: all other settings on its interfaces are foreign.
	Next *Config `json:"next,omitempty"`
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
