package pid1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
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

// ErrNoInterface is returned when the machine has no network interface, or not the one asked for.
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

// connection is the network that a machine has.
type connection struct {
	name    string // host name
	link    netlink.Link
	address netip.Prefix
}

// setupNetwork brings the network up by NetworkFile, else by DHCP where that is asked for, else by DefaultNetwork.
func setupNetwork(ctx context.Context, log *slog.Logger, stateDir, etc string, b bootLine) (connection, error) {
	if err := bringUpLoopback(); err != nil {
		return connection{}, err
	}
	if b.media != nil && b.media.Address.IsValid() {
		return setupMedia(ctx, log, etc, b)
	}
	n, err := readNetwork(filepath.Join(stateDir, NetworkFile))
	switch {
	case errors.Is(err, os.ErrNotExist) && (b.role == RoleInstaller || b.net == NetDHCP):
		return setupDHCP(ctx, log, etc, b)
	case errors.Is(err, os.ErrNotExist):
		n = DefaultNetwork()
	case err != nil:
		return connection{}, err
	}
	if n.MAC == "" {
		n.MAC = b.mac
	}
	link, err := waitForLink(ctx, n.MAC)
	if err != nil {
		return connection{}, err
	}
	return use(link, n, etc)
}

// setupDHCP gets an address and has the lease renewed from then on. An installer without an address has nothing to
// do, and fails. A host goes on without: the network may come back later, and a reboot would not help.
func setupDHCP(ctx context.Context, log *slog.Logger, etc string, b bootLine) (connection, error) {
	began := clock.Real().Now()
	l, err := acquireAny(ctx, b.mac, leaseTimeout)
	switch {
	case err == nil:
		log.Info("address by DHCP", "interface", l.link.Attrs().Name, "address", l.network.Address.String(),
			"server", l.raw.ACK.ServerIdentifier().String(), "lease", l.length, "took", clock.Real().Now().Sub(began))
		c, err := use(l.link, l.network, etc)
		task.Background("dhcp", func() { keepConnected(ctx, log, l, etc) })
		return c, err
	case b.role == RoleInstaller || ctx.Err() != nil:
		return connection{}, err
	}
	log.Warn("no address yet; asking on", "error", err)
	task.Background("dhcp", func() { connectLater(ctx, log, b.mac, etc) })
	return connection{}, nil
}

func connectLater(ctx context.Context, log *slog.Logger, mac, etc string) {
	for ctx.Err() == nil {
		l, err := acquireAny(ctx, mac, leaseTimeout)
		if err != nil {
			continue
		}
		c, err := use(l.link, l.network, etc)
		log.Info("network is up", "hostname", c.name, "address", c.address.String(), "error", err)
		keepConnected(ctx, log, l, etc)
		return
	}
}

// keepConnected returns when ctx ends.
func keepConnected(ctx context.Context, log *slog.Logger, l lease, etc string) {
	err := keep(ctx, clock.Real(), l, func(old, current lease) error {
		log.Warn("address has changed", "from", old.network.Address.String(), "to", current.network.Address.String())
		if err := netlink.AddrDel(old.link, ipNet(old.network.Address)); err != nil {
			log.Warn("old address stays", "error", err)
		}
		_, err := use(current.link, current.network, etc)
		return err
	})
	if ctx.Err() == nil {
		log.Error("lease is no longer renewed", "error", err)
	}
}

// use sets the address of the interface, and the machine's name servers and name.
func use(link netlink.Link, n Network, etc string) (connection, error) {
	c := connection{link: link, address: n.Address}
	if err := configure(link, n); err != nil {
		return c, fmt.Errorf("configure %s: %w", link.Attrs().Name, err)
	}
	if err := os.WriteFile(filepath.Join(etc, "resolv.conf"), resolvConf(n.DNS), 0o644); err != nil {
		return c, fmt.Errorf("write name servers: %w", err)
	}
	saved, err := savedHostname(etc)
	if err != nil {
		return c, err
	}
	if c.name = saved; saved == "" {
		c.name = hostname(n, link.Attrs().HardwareAddr)
	}
	if err := unix.Sethostname([]byte(c.name)); err != nil {
		return c, fmt.Errorf("set host name: %w", err)
	}
	return c, nil
}

// readNetwork fails with os.ErrNotExist when there is no such file.
func readNetwork(path string) (Network, error) {
	data, err := os.ReadFile(path)
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

// pickLink returns the Ethernet device with the MAC, or the one with the lowest index when mac is empty.
func pickLink(links []netlink.Link, mac string) netlink.Link {
	links = ethernet(links, mac)
	if len(links) == 0 {
		return nil
	}
	return slices.MinFunc(links, func(a, b netlink.Link) int { return a.Attrs().Index - b.Attrs().Index })
}

// ethernet returns the Ethernet devices, or only the one with the MAC.
func ethernet(links []netlink.Link, mac string) []netlink.Link {
	return slices.DeleteFunc(slices.Clone(links), func(l netlink.Link) bool {
		a := l.Attrs()
		return l.Type() != "device" || a.EncapType != "ether" ||
			mac != "" && !strings.EqualFold(a.HardwareAddr.String(), mac)
	})
}

func ipNet(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{
		IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
}

func configure(link netlink.Link, n Network) error {
	if err := netlink.AddrReplace(link, ipNet(n.Address)); err != nil {
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
