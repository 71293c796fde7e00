package ignition

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// Interface is a network interface and what it is given.
type Interface struct {
	// ID names it in the configuration.
	ID string
	// MAC is its address, or Name its name, which may be a pattern of the shell.
	MAC, Name string
	DHCP4     bool
	DHCP6     bool
	// ByMAC: its DHCP client identifier is its MAC address.
	ByMAC     bool
	Addresses []netip.Prefix
	Routes    []Route
	DNS       []netip.Addr
	Search    []string
	MTU       int
}

// Route leads to a network. The zero To is a default route.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// settings is the part of the network configuration of version 2 that has a form for NetworkManager and for
// systemd-networkd (cloud-init, "Networking config Version 2").
type settings struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]ethernet `yaml:"ethernets"`
}

type ethernet struct {
	Match struct {
		MAC  string `yaml:"macaddress"`
		Name string `yaml:"name"`
	} `yaml:"match"`
	DHCP4       bool     `yaml:"dhcp4"`
	DHCP6       bool     `yaml:"dhcp6"`
	Identifier  string   `yaml:"dhcp-identifier"`
	Addresses   []string `yaml:"addresses"`
	Gateway4    string   `yaml:"gateway4"`
	Gateway6    string   `yaml:"gateway6"`
	Nameservers struct {
		Addresses []string `yaml:"addresses"`
		Search    []string `yaml:"search"`
	} `yaml:"nameservers"`
	Routes []struct {
		To  string `yaml:"to"`
		Via string `yaml:"via"`
	} `yaml:"routes"`
	MTU int `yaml:"mtu"`
}

// ErrNetwork is returned when a network configuration has settings that are not supported for systems that Ignition
// sets up.
var ErrNetwork = errors.New("the network configuration")

var lineOf = regexp.MustCompile(`line \d+`)

// ParseNetwork reads a network configuration of version 2 with nothing but ethernets in it. Its errors are ErrNetwork,
// and repeat nothing of the text.
func ParseNetwork(text string) ([]Interface, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var c struct {
		Network  *settings `yaml:"network"`
		settings `yaml:",inline"`
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		where := lineOf.FindString(err.Error())
		if where == "" {
			where = "its structure"
		}
		return nil, fmt.Errorf("%w has more than ethernets with addresses, DHCP, routes, name servers and an MTU: %s",
			ErrNetwork, where)
	}
	if c.Network != nil {
		c.settings = *c.Network
	}
	if c.Version != 2 {
		return nil, fmt.Errorf("%w is not of version 2", ErrNetwork)
	}
	var out []Interface
	for _, id := range slices.Sorted(maps.Keys(c.Ethernets)) {
		i, what := c.Ethernets[id].read(id)
		if what != "" {
			return nil, fmt.Errorf("%w has %s that cannot be used", ErrNetwork, what)
		}
		out = append(out, i)
	}
	return out, nil
}

// plain is a name that needs no quoting in any of the forms.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.:*?-]{1,64}$`)

// read returns the interface, or its error.
func (e ethernet) read(id string) (i Interface, what string) {
	i = Interface{ID: id, Name: e.Match.Name, DHCP4: e.DHCP4, DHCP6: e.DHCP6, MTU: e.MTU, Search: e.Nameservers.Search}
	if e.Match.MAC != "" {
		mac, err := hwid.MAC(e.Match.MAC)
		if err != nil {
			return i, "a macaddress"
		}
		i.MAC = mac
	}
	if i.MAC == "" && i.Name == "" {
		i.Name = id
	}
	switch e.Identifier {
	case "mac":
		i.ByMAC = true
	case "":
	default:
		return i, "a dhcp-identifier"
	}
	if !plain.MatchString(id) || i.Name != "" && !plain.MatchString(i.Name) || strings.Contains(id, "*") && i.MAC != "" {
		return i, "an interface's name"
	}
	if e.MTU < 0 || e.MTU > 1<<16 {
		return i, "an mtu"
	}
	for _, s := range e.Nameservers.Search {
		if !plain.MatchString(s) {
			return i, "a search domain"
		}
	}
	return i, e.readAddresses(&i)
}

func (e ethernet) readAddresses(i *Interface) (what string) {
	for _, s := range e.Addresses {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return "an address"
		}
		i.Addresses = append(i.Addresses, p)
	}
	for _, s := range e.Nameservers.Addresses {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return "a name server"
		}
		i.DNS = append(i.DNS, a)
	}
	for _, s := range []string{e.Gateway4, e.Gateway6} {
		if s == "" {
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return "a gateway"
		}
		i.Routes = append(i.Routes, Route{Via: a})
	}
	for _, r := range e.Routes {
		via, err := netip.ParseAddr(r.Via)
		if err != nil || via.Zone() != "" {
			return "a route"
		}
		to, err := netip.ParsePrefix(r.To)
		switch {
		case r.To == "default", err == nil && to.Bits() == 0:
			to = netip.Prefix{}
		case err != nil || to.Addr().Is4() != via.Is4():
			return "a route"
		}
		i.Routes = append(i.Routes, Route{To: to, Via: via})
	}
	return ""
}

// Keyfile is the interface as a connection of NetworkManager, and the name of its file (nm-settings-keyfile(5)). The
// file belongs to root and no other user reads it.
func (i Interface) Keyfile() (name, text string) {
	var b strings.Builder
	section := func(name string, lines ...string) {
		fmt.Fprintf(&b, "[%s]\n", name)
		for _, l := range lines {
			if l != "" {
				b.WriteString(l + "\n")
			}
		}
		b.WriteString("\n")
	}
	byName := ""
	if i.Name != "" && !strings.ContainsAny(i.Name, "*?") {
		byName = "interface-name=" + i.Name
	}
	section("connection", "id="+i.ID, "type=ethernet", byName)
	if i.Name != "" && byName == "" {
		section("match", "interface-name="+i.Name+";")
	}
	section("ethernet", set("mac-address", strings.ToUpper(i.MAC)), number("mtu", i.MTU))
	identifier := ""
	if i.ByMAC {
		identifier = "dhcp-client-id=mac"
	}
	method := "disabled"
	if i.DHCP4 {
		method = "auto"
	} else if i.has(true) {
		method = "manual"
	}
	section("ipv4", append(i.keyfileAddresses(true), "method="+method, identifier)...)
	method = "auto" // by router advertisements
	if !i.DHCP6 && i.has(false) {
		method = "manual"
	}
	section("ipv6", append(i.keyfileAddresses(false), "method="+method)...)
	return "ingot-" + i.ID + ".nmconnection", b.String()
}

// has reports whether the interface has an address of a version.
func (i Interface) has(v4 bool) bool {
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == v4 })
}

func (i Interface) keyfileAddresses(v4 bool) (out []string) {
	n := 0
	for _, p := range i.Addresses {
		if p.Addr().Is4() == v4 {
			n++
			out = append(out, fmt.Sprintf("address%d=%s", n, p))
		}
	}
	n = 0
	for _, r := range i.Routes {
		switch {
		case r.Via.Is4() != v4:
		case !r.To.IsValid():
			out = append(out, "gateway="+r.Via.String())
		default:
			n++
			out = append(out, fmt.Sprintf("route%d=%s,%s", n, r.To, r.Via))
		}
	}
	var dns []string
	for _, a := range i.DNS {
		if a.Is4() == v4 {
			dns = append(dns, a.String()+";")
		}
	}
	if len(dns) > 0 {
		out = append(out, "dns="+strings.Join(dns, ""))
	}
	if v4 && len(i.Search) > 0 {
		out = append(out, "dns-search="+strings.Join(i.Search, ";")+";")
	}
	return out
}

// Networkd is the interface as a file of systemd-networkd, and its name (systemd.network(5)). It goes before those of
// the image.
func (i Interface) Networkd() (name, text string) {
	var b strings.Builder
	b.WriteString("[Match]\n")
	if i.MAC != "" {
		b.WriteString("MACAddress=" + i.MAC + "\n")
	}
	if i.Name != "" {
		b.WriteString("Name=" + i.Name + "\n")
	}
	if i.MTU != 0 {
		fmt.Fprintf(&b, "\n[Link]\nMTUBytes=%d\n", i.MTU)
	}
	dhcp := "no"
	switch {
	case i.DHCP4 && i.DHCP6:
		dhcp = "yes"
	case i.DHCP4:
		dhcp = "ipv4"
	case i.DHCP6:
		dhcp = "ipv6"
	}
	b.WriteString("\n[Network]\nDHCP=" + dhcp + "\n")
	for _, p := range i.Addresses {
		b.WriteString("Address=" + p.String() + "\n")
	}
	for _, a := range i.DNS {
		b.WriteString("DNS=" + a.String() + "\n")
	}
	if len(i.Search) > 0 {
		b.WriteString("Domains=" + strings.Join(i.Search, " ") + "\n")
	}
	for _, r := range i.Routes {
		b.WriteString("\n[Route]\nGateway=" + r.Via.String() + "\n")
		if r.To.IsValid() {
			b.WriteString("Destination=" + r.To.String() + "\n")
		}
	}
	if i.ByMAC {
		b.WriteString("\n[DHCPv4]\nClientIdentifier=mac\n")
	}
	return "00-ingot-" + i.ID + ".network", b.String()
}

func set(key, value string) string {
	if value == "" {
		return ""
	}
	return key + "=" + value
}

func number(key string, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s=%d", key, n)
}
