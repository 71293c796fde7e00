package pid1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is a machine's name and static address.
type Network struct {
	// Hostname is "ingot-" and the end of the MAC address when empty. A name in /etc/hostname goes before it.
	Hostname string `json:"hostname,omitempty"`
	// MAC picks the interface; the first physical one is taken when it is empty.
	MAC string `json:"mac,omitempty"`
	// Address is in CIDR form, such as 192.0.2.7/24.
	Address netip.Prefix `json:"address"`
	// Gateway is the default route; none when it is the zero value.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// DNS are the name servers.
	DNS []netip.Addr `json:"dns,omitempty"`
}

// ErrNoInterface says that the machine has no network interface, or not the one asked for.
var ErrNoInterface = errors.New("no such network interface")

// DefaultNetwork is the address of the only guest on QEMU's user network
// (https://wiki.qemu.org/Documentation/Networking).
func DefaultNetwork() Network {
	return Network{
		Address: netip.MustParsePrefix("10.0.2.15/24"),
		Gateway: netip.MustParseAddr("10.0.2.2"),
		DNS:     []netip.Addr{netip.MustParseAddr("10.0.2.3")},
	}
}

// setupNetwork returns the host name and the address it has set.
func setupNetwork(ctx context.Context, stateDir, etc string) (name, address string, err error) {
	n, err := readNetwork(filepath.Join(stateDir, NetworkFile))
	if err != nil {
		return "", "", err
	}
	if err := bringUpLoopback(); err != nil {
		return "", "", err
	}
	link, err := waitForLink(ctx, n.MAC)
	if err != nil {
		return "", "", err
	}
	if err := configure(link, n); err != nil {
		return "", "", fmt.Errorf("configure %s: %w", link.Attrs().Name, err)
	}
	if err := os.WriteFile(filepath.Join(etc, "resolv.conf"), resolvConf(n.DNS), 0o644); err != nil {
		return "", "", fmt.Errorf("write name servers: %w", err)
	}
	name, err = savedHostname(etc)
	if err != nil {
		return "", "", err
	}
	if name == "" {
		name = hostname(n, link.Attrs().HardwareAddr)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return "", "", fmt.Errorf("set host name: %w", err)
	}
	return name, n.Address.String(), nil
}

func readNetwork(path string) (Network, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return DefaultNetwork(), nil
	}
	if err != nil {
		return Network{}, fmt.Errorf("read network file: %w", err)
	}
	return parseNetwork(data)
}

// parseNetwork refuses unknown keys and a file without an address.
func parseNetwork(data []byte) (Network, error) {
	var n Network
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&n); err != nil {
		return Network{}, fmt.Errorf("parse network file: %w", err)
	}
	if !n.Address.IsValid() {
		return Network{}, errors.New("parse network file: no address")
	}
	return n, nil
}

func bringUpLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	return nil
}

func waitForLink(ctx context.Context, mac string) (netlink.Link, error) {
	var link netlink.Link
	var err error
	found := poll(ctx, networkTimeout, func() bool {
		var links []netlink.Link
		links, err = netlink.LinkList()
		link = pickLink(links, mac)
		return link != nil
	})
	if !found {
		return nil, errors.Join(ErrNoInterface, err)
	}
	return link, nil
}

// pickLink gives the Ethernet device with the MAC, or the one with the lowest index when mac is empty.
func pickLink(links []netlink.Link, mac string) netlink.Link {
	links = slices.DeleteFunc(slices.Clone(links), func(l netlink.Link) bool {
		a := l.Attrs()
		return l.Type() != "device" || a.EncapType != "ether" ||
			mac != "" && !strings.EqualFold(a.HardwareAddr.String(), mac)
	})
	if len(links) == 0 {
		return nil
	}
	return slices.MinFunc(links, func(a, b netlink.Link) int { return a.Attrs().Index - b.Attrs().Index })
}

func configure(link netlink.Link, n Network) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: n.Address.Addr().AsSlice(), Mask: net.CIDRMask(n.Address.Bits(), n.Address.Addr().BitLen()),
	}}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	if !n.Gateway.IsValid() {
		return nil
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: n.Gateway.AsSlice()}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("set default route: %w", err)
	}
	return nil
}

func resolvConf(servers []netip.Addr) []byte {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	return []byte(b.String())
}

// hostname falls back on the last three bytes of the MAC: stable, and different for every machine of a maker.
func hostname(n Network, mac net.HardwareAddr) string {
	if n.Hostname != "" || len(mac) < 3 {
		return n.Hostname
	}
	return fmt.Sprintf("ingot-%x", []byte(mac[len(mac)-3:]))
}
