package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory/lldp"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// Config is the source of the inventory.
type Config struct {
	// Root is where /etc, /proc and /sys are. "": the root directory. Below another root only files are read,
	// and no device or kernel of this machine is asked.
	Root string
	// Now is the time of collection. nil: time.Now.
	Now func() time.Time
	// Heard is what the last round of listening on the network interfaces found; nil before the first.
	Heard *lldp.Heard
}

// Collect reads what it can, with nothing but /proc and /sys and whatever privileges it has.
func Collect(cfg Config) Document {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := collector{root: rootOr(cfg.Root), missing: map[string]string{}, heard: cfg.Heard}
	doc := Document{CollectedAt: cfg.Now(), System: c.system(), CPU: c.cpu(), Disks: c.disks(),
		Arrays: c.arrays(), NICs: c.nics(), PCI: c.pci()}
	doc.Accelerators = c.accelerators(doc.PCI)
	tables := c.tables()
	doc.Memory = c.memory(tables)
	doc.Firmware = c.firmware(tables)
	doc.BMC = c.bmc()
	doc.TPM = c.tpm()
	doc.OS = c.os()
	for part, why := range c.missing {
		doc.Missing = append(doc.Missing, part+": "+why)
	}
	return doc.Normal().bounded()
}

func rootOr(root string) string {
	if root == "" {
		return "/"
	}
	return root
}

// collector reads below a root and remembers what was missing.
type collector struct {
	root    string
	missing map[string]string
	heard   *lldp.Heard
}

func (c collector) miss(part, format string, args ...any) {
	if _, known := c.missing[part]; !known {
		c.missing[part] = fmt.Sprintf(format, args...)
	}
}

func (c collector) path(rel string) string { return filepath.Join(c.root, rel) }

// text is a file's content without surrounding space and NULs, "" if it cannot be read.
func (c collector) text(rel string) string {
	b, err := os.ReadFile(c.path(rel))
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), " \t\r\n\x00")
}

func (c collector) first(rels ...string) string {
	for _, rel := range rels {
		if s := c.text(rel); s != "" {
			return s
		}
	}
	return ""
}

func (c collector) number(rel string) int64 {
	n, err := strconv.ParseInt(c.text(rel), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (c collector) exists(rel string) bool {
	_, err := os.Stat(c.path(rel))
	return err == nil
}

// names lists a directory, sorted; nil if it cannot be read.
func (c collector) names(rel string) []string {
	entries, err := os.ReadDir(c.path(rel))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(names)
	return names
}

// linkName is the last part of a symbolic link's target, such as the driver of a device.
func (c collector) linkName(rel string) string {
	target, err := os.Readlink(c.path(rel))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// resolved is where a path of links ends, "" if it ends nowhere.
func (c collector) resolved(rel string) string {
	p, err := filepath.EvalSymlinks(c.path(rel))
	if err != nil {
		return ""
	}
	return p
}

// ReadFingerprinted reads the make of the machine from DMI for its fingerprint of version 1. Without root the serials
// and the UUID are empty. What it leaves out is what the first agents left out, and stays so: controllers compare that
// version with the one of an agent that has been upgraded since.
func ReadFingerprinted(root string) System {
	c := collector{root: rootOr(root), missing: map[string]string{}}
	return c.dmi(func(s string) string {
		switch strings.ToLower(s) {
		case "none", "not specified", "to be filled by o.e.m.", "default string", "system serial number", "unknown",
			"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "0", "n/a":
			return ""
		}
		return s
	})
}

func (c collector) dmi(read func(string) string) System {
	id := func(name string) string { return read(c.text("sys/class/dmi/id/" + name)) }
	return System{
		Vendor: id("sys_vendor"), Product: id("product_name"), Serial: id("product_serial"), UUID: id("product_uuid"),
		BoardVendor: id("board_vendor"), BoardProduct: id("board_name"), BoardSerial: id("board_serial"),
		ChassisSerial: id("chassis_serial"), AssetTag: id("chassis_asset_tag"),
	}
}

func (c collector) system() System {
	s := c.dmi(hwid.Text)
	s.UUID = hwid.UUID(s.UUID)
	switch {
	case !c.exists("sys/class/dmi/id"):
		c.miss("system", "no DMI in sysfs")
	case !c.readable("sys/class/dmi/id/product_uuid"):
		c.miss("system serials", "not readable without root")
	}
	return s
}

func (c collector) readable(rel string) bool {
	f, err := os.Open(c.path(rel))
	if err != nil {
		return false
	}
	return f.Close() == nil
}

func (c collector) os() OS {
	rel := c.osRelease()
	o := OS{
		Name: rel["PRETTY_NAME"], ID: rel["ID"], Version: rel["VERSION_ID"],
		Kernel: c.text("proc/sys/kernel/osrelease"), Hostname: c.text("proc/sys/kernel/hostname"),
		MachineID: c.text("etc/machine-id"), BootID: c.text("proc/sys/kernel/random/boot_id"), FirmwareIs: "bios",
		ImageDigest: c.image().Digest,
	}
	if c.exists("sys/firmware/efi") {
		o.FirmwareIs = "uefi"
	}
	for part, value := range map[string]string{"os": o.ID, "kernel": o.Kernel, "machine-id": o.MachineID,
		"boot id": o.BootID} {
		if value == "" {
			c.miss(part, "nothing to read")
		}
	}
	return o
}

// osRelease reads os-release(5): assignments, maybe quoted.
func (c collector) osRelease() map[string]string {
	values := map[string]string{}
	for line := range strings.SplitSeq(c.first("etc/os-release", "usr/lib/os-release"), "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			values[key] = strings.Trim(value, `"'`)
		}
	}
	return values
}

func (c collector) cpu() CPU {
	info := c.cpuinfo()
	cpu := CPU{Architecture: runtime.GOARCH, Vendor: info["vendor_id"], Model: info["model name"]}
	if cpu.Vendor == "" {
		cpu.Vendor = info["CPU implementer"] // arm64 has only numbers
		cpu.Model = info["CPU part"]
	}
	sockets, cores := map[string]bool{}, map[string]bool{}
	for _, name := range c.names("sys/devices/system/cpu") {
		if !numbered(name, "cpu") {
			continue
		}
		cpu.Threads++
		topology := "sys/devices/system/cpu/" + name + "/topology/"
		sockets[c.text(topology+"physical_package_id")] = true
		// The threads of a core share one list; core ids repeat on some processors with several dies.
		cores[c.first(topology+"core_cpus_list", topology+"thread_siblings_list")] = true
	}
	delete(sockets, "") // an offline thread has no topology
	delete(cores, "")
	cpu.Sockets, cpu.Cores = len(sockets), len(cores)
	if cpu.Threads == 0 || cpu.Sockets == 0 {
		c.miss("cpu topology", "nothing in sysfs")
	}
	return cpu
}

// cpuinfo is the first processor's block of /proc/cpuinfo.
func (c collector) cpuinfo() map[string]string {
	values := map[string]string{}
	for line := range strings.SplitSeq(c.text("proc/cpuinfo"), "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			break
		}
		values[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return values
}

// numbered reports whether name is prefix and digits.
func numbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	_, err := strconv.ParseUint(digits, 10, 32)
	return err == nil
}
