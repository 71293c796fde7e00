package inventory

import (
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	sysdisk "github.com/ingot-metal/ingot/agent/disk"
	"github.com/ingot-metal/ingot/internal/accelerator"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// disks lists the attached disks, read as the installer reads them.
func (c collector) disks() []Disk {
	if !c.exists("sys/block") {
		c.miss("disks", "no sys/block")
		return nil
	}
	attached, err := sysdisk.Attached(c.root)
	if err != nil {
		c.miss("disks", "%v", err)
		return nil
	}
	var disks []Disk
	for _, d := range attached {
		if d.Size <= 0 {
			continue // a reader of cards without a card
		}
		disks = append(disks, Disk{
			Name:       d.Name,
			Model:      d.Model,
			Serial:     hwid.Text(d.Serial),
			WWN:        d.WWN,
			SizeBytes:  uint64(d.Size),
			Rotational: d.Rotational,
			Removable:  d.Removable,
			Transport:  d.Transport,
			Firmware:   d.Firmware,
		})
	}
	return disks
}

// PermanentMACs are those that fingerprints of version 1 count: all physical network interfaces, sorted, without USB
// ones, which management controllers plug in and out. Identity marks those that are an identity.
func PermanentMACs(root string) []string {
	c := collector{root: rootOr(root), missing: map[string]string{}}
	var macs []string
	for _, name := range Interfaces(root) {
		address := c.permanentAddress(name)
		if address != "" && !strings.Contains(c.resolved("sys/class/net/"+name+"/device"), "/usb") {
			macs = append(macs, address)
		}
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

func (c collector) nics() []NIC {
	if !c.exists("sys/class/net") {
		c.miss("nics", "no sys/class/net")
		return nil
	}
	if c.heard == nil {
		c.miss(neighbours, "not listened for yet")
	}
	var nics []NIC
	for _, name := range c.names("sys/class/net") {
		if c.exists("sys/class/net/" + name + "/device") {
			nics = append(nics, c.nic(name))
		}
	}
	return nics
}

var pciAddress = regexp.MustCompile(`[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)

func (c collector) nic(name string) NIC {
	dir := "sys/class/net/" + name + "/"
	mac, _ := hwid.MAC(c.permanentAddress(name)) // that of InfiniBand is none, and nothing boots by it
	n := NIC{
		Name: name, MAC: mac, Driver: c.linkName(dir + "device/driver"),
		LinkUp: c.text(dir+"operstate") == "up", SpeedMbps: int(max(c.number(dir+"speed"), 0)),
	}
	// The last address on the way is that of the card; those before it are bridges.
	if on := pciAddress.FindAllString(c.resolved(dir+"device"), -1); len(on) > 0 {
		n.PCI = on[len(on)-1]
	}
	n.Firmware = c.nicFirmware(name)
	if c.heard != nil {
		n.Neighbours = c.heard.Neighbours[name]
		if fault := c.heard.Faults[name]; fault != "" {
			c.miss(neighbours+" of "+name, "%s", fault)
		}
	}
	return n
}

// neighbours names that part where it is missing.
const neighbours = "neighbours"

// Interfaces are the names of the physical network interfaces.
func Interfaces(root string) []string {
	c := collector{root: rootOr(root), missing: map[string]string{}}
	return slices.DeleteFunc(c.names("sys/class/net"),
		func(name string) bool { return !c.exists("sys/class/net/" + name + "/device") })
}

// permanentAddress asks the kernel for the address in the card, which a bond or an operator cannot change, and
// settles for the one in use.
func (c collector) permanentAddress(name string) string {
	if c.live() {
		if link, err := netlink.LinkByName(name); err == nil && !zero(link.Attrs().PermHWAddr) {
			return link.Attrs().PermHWAddr.String()
		}
	}
	address := c.text("sys/class/net/" + name + "/address")
	if strings.Trim(address, "0:") == "" {
		return ""
	}
	return strings.ToLower(address)
}

func zero(mac net.HardwareAddr) bool {
	return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// live reports whether the root is this machine's own, so that its kernel may be asked too.
func (c collector) live() bool { return c.root == "/" }

func (c collector) nicFirmware(name string) string {
	if !c.live() {
		return ""
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return hwid.Text(unix.ByteSliceToString(info.Fw_version[:]))
}

func (c collector) pci() []PCI {
	const dir = "sys/bus/pci/devices/"
	if !c.exists(dir) {
		c.miss("pci", "no PCI bus in sysfs")
		return nil
	}
	var devices []PCI
	for _, address := range c.names(dir) {
		at := dir + address + "/"
		p := PCI{
			Address: address, Class: hexID(c.text(at + "class")), Vendor: hexID(c.text(at + "vendor")),
			Device: hexID(c.text(at + "device")), Driver: c.linkName(at + "driver"),
		}
		if sub := hexID(c.text(at + "subsystem_vendor")); sub != "" && sub != "0000" {
			p.Subsystem = sub + ":" + hexID(c.text(at+"subsystem_device"))
		}
		p.GPU = accelerator.Is(p.Class, p.Vendor)
		devices = append(devices, p)
	}
	return devices
}

func hexID(s string) string { return strings.TrimPrefix(s, "0x") }
