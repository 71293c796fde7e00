package disk

import (
	"fmt"
	"slices"
	"strings"
)

// Device is one whole disk. Partitions, and devices stacked on disks (device mapper, RAID), are not Devices.
type Device struct {
	Name   string   `json:"name"`             // of the kernel, such as nvme0n1; volatile
	Path   string   `json:"path"`             // such as /dev/nvme0n1
	Links  []string `json:"links,omitempty"`  // the /dev/disk/by-* names, sorted
	Paths  []string `json:"paths,omitempty"`  // other files under /dev that lead to the same disk
	Serial string   `json:"serial,omitempty"` // without surrounding space
	WWN    string   `json:"wwn,omitempty"`    // as sysfs has it, such as naa.5000c500a1b2c3d4 or eui.…
	Model  string   `json:"model,omitempty"`
	Size   int64    `json:"size"` // bytes
	Sector int      `json:"sector"`
	// Transport is how the disk is attached (nvme, ata, scsi, virtio, usb, mmc) and Firmware its version; empty where
	// sysfs does not say.
	Transport string `json:"-"`
	Firmware  string `json:"-"`
	// Seqs are the kernel's numbers of the medium behind Path and of each of Paths. No other disk gets one of them in the
	// same boot (Documentation/ABI/stable/sysfs-block, diskseq). Linux before 5.15 has none.
	Seqs []uint64 `json:"-"`
	// Subsystem is the name of the NVM subsystem, whose namespaces one sanitize takes.
	Subsystem string `json:"subsystem,omitempty"`

	Rotational bool `json:"rotational,omitempty"`
	Removable  bool `json:"removable,omitempty"`
	ReadOnly   bool `json:"read_only,omitempty"`
	// Discard is set when the device can discard blocks.
	Discard bool `json:"discard,omitempty"`

	Partitions []string `json:"partitions,omitempty"` // kernel names
	// InUse lists where the disk or a part of it is mounted, swapped on, or held by another device. Sorted.
	InUse []string `json:"in_use,omitempty"`
}

// String names the disk in a way that a person can find it by.
func (d Device) String() string {
	s := d.Path
	if d.Serial != "" {
		s += " serial=" + d.Serial
	}
	if d.WWN != "" {
		s += " wwn=" + d.WWN
	}
	if d.Model != "" {
		s += " model=" + d.Model
	}
	return s + " size=" + FormatSize(d.Size)
}

// ID is what a disk is called in evidence and found again by: its WWN, else its serial number, else its path. The
// namespaces of an NVMe controller share a serial number, and each has a WWN of its own.
func (d Device) ID() string {
	switch {
	case d.WWN != "":
		return d.WWN
	case d.Serial != "":
		return d.Serial
	}
	return d.Path
}

// Named reports whether path is one of the names of the disk under /dev.
func (d Device) Named(path string) bool {
	return path == d.Path || slices.Contains(d.Links, path) || slices.Contains(d.Paths, path)
}

// Unfit returns why the disk may not be written, whatever the rule; "" if it may be.
func (d Device) Unfit() string {
	switch {
	case d.ReadOnly:
		return "it is read-only"
	case d.Removable:
		return "it is removable"
	case len(d.InUse) > 0:
		return "it is in use: " + strings.Join(d.InUse, ", ")
	case d.Size <= 0:
		return "it has no medium"
	}
	return ""
}

// FormatSize prints bytes in the largest binary unit that is not above them.
func FormatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		switch {
		case n >= u.size && n%u.size == 0:
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		case n >= u.size:
			return fmt.Sprintf("%.1f%s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
