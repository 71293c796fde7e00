package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Switch is an Ethernet segment.
type Switch struct {
	ns *Namespace
	// Name is its bridge device, on which all traffic can be captured.
	Name string
}

// Switch makes a segment. The name is that of a network device: at most 15 bytes.
func (n *Namespace) Switch(name string) (*Switch, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := n.links.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, fmt.Errorf("make switch %s: %w", name, err)
	}
	return &Switch{n, name}, n.up(name)
}

// Tap makes a port for a virtual machine, which opens the device by its name.
func (s *Switch) Tap(name string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS |
		netlink.TUNTAP_NO_PI}
	// The device comes into being in the namespace of the thread that asks for it.
	if err := s.ns.Do(func() error { return netlink.LinkAdd(tap) }); err != nil {
		return fmt.Errorf("make port %s: %w", name, err)
	}
	return s.plug(name)
}

func (s *Switch) plug(name string) error {
	link, err := s.ns.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find port %s: %w", name, err)
	}
	bridge, err := s.ns.links.LinkByName(s.Name)
	if err != nil {
		return fmt.Errorf("find switch %s: %w", s.Name, err)
	}
	if err := s.ns.links.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plug %s into %s: %w", name, s.Name, err)
	}
	return s.ns.up(name)
}

// Unplug pulls a port's cable out at the switch; Plug puts it back.
func (s *Switch) Unplug(name string) error {
	link, err := s.ns.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find port %s: %w", name, err)
	}
	if err := s.ns.links.LinkSetNoMaster(link); err != nil {
		return fmt.Errorf("unplug %s from %s: %w", name, s.Name, err)
	}
	return nil
}

// Plug ends Unplug.
func (s *Switch) Plug(name string) error { return s.plug(name) }

// Card makes a network card with an address, plugged into the segment, for programs in the namespace to; that may be
// the segment's own. Unlike a machine's port it always has a link.
func (s *Switch) Card(to *Namespace, name string, address netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "p-" + name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(to.file.Fd())}
	if err := s.ns.links.LinkAdd(pair); err != nil {
		return fmt.Errorf("make network card %s: %w", name, err)
	}
	if err := s.plug(attrs.Name); err != nil {
		return err
	}
	if err := to.Address(name, address); err != nil {
		return err
	}
	return to.up(name)
}

// Remove removes a network device, and what it is a pair with.
func (n *Namespace) Remove(device string) error {
	link, err := n.links.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", device, err)
	}
	if err := n.links.LinkDel(link); err != nil {
		return fmt.Errorf("remove network device %s: %w", device, err)
	}
	return nil
}

// SetMAC sets the MAC address of a network device.
func (n *Namespace) SetMAC(device string, mac net.HardwareAddr) error {
	link, err := n.links.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", device, err)
	}
	if err := n.links.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("set MAC address of %s: %w", device, err)
	}
	return nil
}

// Address adds an address to a network device, if it does not have it yet.
func (n *Namespace) Address(device string, address netip.Prefix) error {
	link, err := n.links.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", device, err)
	}
	mask := net.CIDRMask(address.Bits(), address.Addr().BitLen())
	if err := n.links.AddrReplace(link,
		&netlink.Addr{IPNet: &net.IPNet{IP: address.Addr().AsSlice(), Mask: mask}}); err != nil {
		return fmt.Errorf("set address %s of %s: %w", address, device, err)
	}
	return nil
}
