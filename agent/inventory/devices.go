package inventory

import (
	"cmp"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/accelerator"
)

// disks are the whole block devices with a device behind them.
func (c collector) disks() []Disk {
	if !c.exists("sys/block") {
		c.miss("disks", "no sys/block")
		return nil
	}
	var disks []Disk
	for _, name := range c.names("sys/block") {
		if !c.exists("sys/block/"+name+"/device") || strings.HasPrefix(name, "sr") || strings.HasPrefix(name, "fd") {
			continue // virtual, optical, floppy
		}
		if d := c.disk(name); d.SizeBytes > 0 {
			disks = append(disks, d)
		}
	}
	return disks
}

func (c collector) disk(name string) Disk {
	dir := "sys/block/" + name + "/"
	d := Disk{
		Name: name, Model: c.text(dir + "device/model"), Serial: c.diskSerial(dir),
		WWN:        c.first(dir+"wwid", dir+"device/wwid", dir+"device/wwn"),
		SizeBytes:  uint64(max(c.number(dir+"size"), 0)) * 512, // sysfs counts sectors of 512 bytes whatever the disk's are
		Rotational: c.text(dir+"queue/rotational") == "1", Removable: c.text(dir+"removable") == "1",
		Transport: transport(c.resolved("sys/block/" + name)),
		Firmware:  c.first(dir+"device/firmware_rev", dir+"device/rev"),
	}
	c.identified(dir, &d)
	return d
}

// diskSerial asks virtio, NVMe and, for SCSI and ATA, the unit serial number page (SPC-5, page 80h: four bytes
// of header, then text).
func (c collector) diskSerial(dir string) string {
	if s := c.first(dir+"serial", dir+"device/serial"); s != "" {
		return s
	}
	page, err := c.limited(dir+"device/vpd_pg80", mostPage)
	if err != nil || len(page) < 4 {
		return ""
	}
	return strings.Trim(string(page[4:]), " \x00")
}

// identified takes the model and the firmware of an ATA disk whole: SCSI has 16 and 4 characters for them. The page ATA
// Information (SAT-4, page 89h) has IDENTIFY DEVICE data (ACS-4, 7.13.7) at byte 60.
func (c collector) identified(dir string, d *Disk) {
	const identify, firmware, model, end = 60, 60 + 23*2, 60 + 27*2, 60 + 47*2
	page, err := c.limited(dir+"device/vpd_pg89", mostPage)
	if err != nil || len(page) < identify+512 {
		return
	}
	d.Firmware = cmp.Or(ataText(page[firmware:model]), d.Firmware)
	d.Model = cmp.Or(ataText(page[model:end]), d.Model)
}

// ataText reads a text in words whose first character is in the upper byte.
func ataText(words []byte) string {
	out := make([]byte, len(words))
	for i := 0; i+1 < len(words); i += 2 {
		out[i], out[i+1] = words[i+1], words[i]
	}
	return strings.Trim(string(out), " \x00")
}

// mostPage bounds a page of a disk's data, in bytes.
const mostPage = 4096

// transport reads how a disk is attached from its place in the device tree.
func transport(sysPath string) string {
	for _, t := range []struct{ part, name string }{
		{"/usb", "usb"}, {"/nvme", "nvme"}, {"/ata", "ata"}, {"/virtio", "virtio"}, {"/mmc", "mmc"}, {"/host", "scsi"},
	} {
		if strings.Contains(sysPath, t.part) {
			return t.name
		}
	}
	return ""
}

// PermanentMACs are those of the physical network interfaces, sorted, without USB ones: management controllers
// plug those in and out as they like.
func PermanentMACs(root string) []string {
	c := collector{root: rootOr(root), missing: map[string]string{}}
	var macs []string
	for _, n := range c.nics() {
		if n.MAC != "" && !strings.Contains(c.resolved("sys/class/net/"+n.Name+"/device"), "/usb") {
			macs = append(macs, n.MAC)
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
	n := NIC{
		Name: name, MAC: c.permanentMAC(name), Driver: c.linkName(dir + "device/driver"),
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

// permanentMAC asks the kernel for the address in the card, which a bond or an operator cannot change, and
// settles for the one in use.
func (c collector) permanentMAC(name string) string {
	if c.live() {
		if link, err := netlink.LinkByName(name); err == nil && !zero(link.Attrs().PermHWAddr) {
			return link.Attrs().PermHWAddr.String()
		}
	}
	mac, err := net.ParseMAC(c.text("sys/class/net/" + name + "/address"))
	if err != nil || zero(mac) {
		return ""
	}
	return mac.String()
}

func zero(mac net.HardwareAddr) bool {
	return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// live says that the root is this machine's own, so that its kernel may be asked too.
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
	return dmiValue(strings.TrimSpace(unix.ByteSliceToString(info.Fw_version[:])))
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
