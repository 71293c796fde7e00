package inventory

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// mostCards bounds the network cards that tell a machine.
const mostCards = 64

// Identity reads the values that distinguish the machine from others. Addresses that software chooses are left out:
// those of virtual functions and representors, of links that are no Ethernet, of USB, and locally administered ones.
func Identity(root string) hwid.Facts {
	c := collector{root: rootOr(root), missing: map[string]string{}}
	s := c.system()
	f := hwid.Facts{UUID: s.UUID, Serial: s.Serial, Board: s.BoardSerial, Chassis: s.ChassisSerial}
	if f.Serial == "" {
		f.Serial = hwid.Text(c.text("proc/device-tree/serial-number")) // of boards without DMI
	}
	for _, fact := range []struct{ name, file string }{
		{"the system's UUID", "product_uuid"}, {"the system's serial number", "product_serial"},
		{"the mainboard's serial number", "board_serial"},
	} {
		if file := "sys/class/dmi/id/" + fact.file; c.exists(file) && !c.readable(file) {
			f.Unread = append(f.Unread, fact.name)
		}
	}
	for _, name := range Interfaces(root) {
		if mac := c.card(name); mac != "" {
			f.MACs = append(f.MACs, mac)
		}
	}
	slices.Sort(f.MACs)
	f.MACs = slices.Compact(f.MACs)
	f.MACs = f.MACs[:min(len(f.MACs), mostCards)]
	return f
}

// representor is the port name of a switch's end of a function (Linux, devlink-port.rst; a split one in nfp, "vfr" in
// ice, the port before it in sfc).
var representor = regexp.MustCompile(`^(c\d+|p\d+)?pf\d+(s\d+)?((vf|sf)r?\d+)?$`)

// ethernet is ARPHRD_ETHER (linux/if_arp.h).
const ethernet = "1"

// card returns the address of a network interface that is a card of its own; "" of any other.
func (c collector) card(name string) string {
	dir := "sys/class/net/" + name + "/"
	if kind := c.text(dir + "type"); kind != "" && kind != ethernet {
		return ""
	}
	device := c.resolved(dir + "device")
	if c.linkName(dir+"device/physfn") != "" || strings.Contains(device, "/usb") || strings.Contains(device, ".sf.") ||
		representor.MatchString(c.text(dir+"phys_port_name")) {
		return ""
	}
	mac, err := hwid.MAC(c.burnedIn(name))
	if err != nil || hwid.LocalMAC(mac) {
		return ""
	}
	return mac
}

// burnedIn is the address in the card. Where the kernel does not tell it, it is the one in use, unless that was set
// (addr_assign_type of sysfs-class-net: 0 is permanent).
func (c collector) burnedIn(name string) string {
	if c.live() {
		if link, err := netlink.LinkByName(name); err == nil && !zero(link.Attrs().PermHWAddr) {
			return link.Attrs().PermHWAddr.String()
		}
	}
	dir := "sys/class/net/" + name + "/"
	if how := c.text(dir + "addr_assign_type"); how != "" && how != "0" {
		return ""
	}
	return c.text(dir + "address")
}
