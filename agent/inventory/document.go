// Package inventory describes what a machine is made of, as one document with a stable form and a hash.
//
// A part that could not be read (no permission, no such interface in a small initramfs) is named in
// Document.Missing. It is never an error: an inventory with holes is worth more than none, and the holes
// must not be taken for hardware that has gone.
package inventory

import (
	"time"

	"github.com/ingot-metal/ingot/agent/inventory/lldp"
)

// Document is the inventory of one machine. Lists are sorted by a key that does not depend on the order of discovery,
// so that two collections have the same bytes.
type Document struct {
	CollectedAt time.Time `json:"collected_at"` // volatile
	Simulated   bool      `json:"simulated,omitempty"`

	System System `json:"system"`
	CPU    CPU    `json:"cpu"`
	Memory Memory `json:"memory"`
	Disks  []Disk `json:"disks"`
	// Arrays are the software RAID of the system that runs, absent without any.
	Arrays []Array `json:"arrays,omitempty"`
	NICs   []NIC   `json:"nics"`
	PCI    []PCI   `json:"pci"`
	// Accelerators are those of the PCI functions that are some, and what their drivers say of them.
	Accelerators []Accelerator `json:"accelerators"`

	Firmware []Firmware `json:"firmware"`
	BMC      *BMC       `json:"bmc,omitempty"`
	TPM      *TPM       `json:"tpm,omitempty"`
	OS       OS         `json:"os"`

	// Missing names the parts that could not be read, each as "part: why". Sorted.
	Missing []string `json:"missing,omitempty"`
}

// System is the make of the machine, from DMI.
type System struct {
	Vendor        string `json:"vendor,omitempty"`
	Product       string `json:"product,omitempty"`
	Serial        string `json:"serial,omitempty"`
	UUID          string `json:"uuid,omitempty"`
	BoardVendor   string `json:"board_vendor,omitempty"`
	BoardProduct  string `json:"board_product,omitempty"`
	BoardSerial   string `json:"board_serial,omitempty"`
	ChassisSerial string `json:"chassis_serial,omitempty"`
	AssetTag      string `json:"asset_tag,omitempty"`
}

// CPU sums up all processors of the machine.
type CPU struct {
	Architecture string `json:"architecture"` // as Go names it: amd64, arm64
	Vendor       string `json:"vendor,omitempty"`
	Model        string `json:"model,omitempty"`
	Sockets      int    `json:"sockets"`
	Cores        int    `json:"cores"`   // over all sockets
	Threads      int    `json:"threads"` // over all sockets
}

// Memory is the main memory. TotalBytes is the fitted memory, UsableBytes the part that the running kernel can use.
type Memory struct {
	TotalBytes  uint64 `json:"total_bytes"`
	UsableBytes uint64 `json:"usable_bytes"`    // volatile: differs by kernel
	Slots       int    `json:"slots,omitempty"` // for modules, empty ones too; 0 is unknown
	DIMMs       []DIMM `json:"dimms"`
}

// DIMM is one fitted memory module. Empty slots are not listed.
type DIMM struct {
	Locator      string `json:"locator"`
	Bank         string `json:"bank,omitempty"`
	SizeBytes    uint64 `json:"size_bytes"`
	SpeedMTs     int    `json:"speed_mts,omitempty"` // mega-transfers per second
	Type         string `json:"type,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	PartNumber   string `json:"part_number,omitempty"`
	Serial       string `json:"serial,omitempty"`
}

// Disk is one whole block device with a medium of its own; no loop, ram, zram, dm or md devices.
type Disk struct {
	Name       string `json:"name"` // kernel name, volatile: it may change with the order of discovery
	Model      string `json:"model,omitempty"`
	Serial     string `json:"serial,omitempty"`
	WWN        string `json:"wwn,omitempty"`
	SizeBytes  uint64 `json:"size_bytes"`
	Rotational bool   `json:"rotational"`
	Removable  bool   `json:"removable,omitempty"`
	Transport  string `json:"transport,omitempty"` // nvme, ata, scsi, virtio, usb, mmc
	Firmware   string `json:"firmware,omitempty"`
}

// NIC is one physical network interface. MAC is the permanent address, lower case with colons.
type NIC struct {
	Name      string `json:"name"` // volatile
	MAC       string `json:"mac"`
	Driver    string `json:"driver,omitempty"`
	PCI       string `json:"pci,omitempty"`        // address on the bus it sits on, such as 0000:3b:00.0
	LinkUp    bool   `json:"link_up"`              // volatile
	SpeedMbps int    `json:"speed_mbps,omitempty"` // volatile; 0 is unknown
	Firmware  string `json:"firmware,omitempty"`
	// Neighbours are what was heard at the other end of the cable.
	Neighbours []lldp.Neighbour `json:"neighbours,omitempty"`
}

// PCI is one PCI function. GPU is set for accelerators, and not for a server's display chip.
type PCI struct {
	Address   string `json:"address"`
	Class     string `json:"class"`  // six hex digits, PCI Code and ID Assignment Specification
	Vendor    string `json:"vendor"` // four hex digits
	Device    string `json:"device"`
	Subsystem string `json:"subsystem,omitempty"` // vendor:device
	Driver    string `json:"driver,omitempty"`
	GPU       bool   `json:"gpu,omitempty"`
}

// Accelerator is a processor for computing on the PCI bus. What comes from its driver is empty without one.
type Accelerator struct {
	Address       string `json:"address"`
	Vendor        string `json:"vendor"` // four hex digits
	Device        string `json:"device"`
	Model         string `json:"model,omitempty"`
	Serial        string `json:"serial,omitempty"` // or the device's own UUID
	Driver        string `json:"driver,omitempty"`
	DriverVersion string `json:"driver_version,omitempty"`
	Firmware      string `json:"firmware,omitempty"`
	MemoryBytes   uint64 `json:"memory_bytes,omitempty"`
	// Link is the PCI Express link that it has, and LinkBest the one that it could have, such as "32.0 GT/s x16".
	Link     string `json:"link,omitempty"` // volatile: an idle device slows its link down
	LinkBest string `json:"link_best,omitempty"`
}

// Firmware is the version of one piece of firmware, such as bios, bios-date, cpu-microcode or uefi.
type Firmware struct {
	Component string `json:"component"`
	Version   string `json:"version"`
}

// BMC is the management controller as far as the running system knows it.
type BMC struct {
	Present bool   `json:"present"`
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
}

// TPM is the trusted platform module.
type TPM struct {
	Present bool   `json:"present"`
	Version string `json:"version,omitempty"` // "1.2" or "2.0"
}

// OS is the running system. ImageDigest is the system's own claim of the image that it was made from.
type OS struct {
	Name        string `json:"name,omitempty"` // PRETTY_NAME of os-release
	ID          string `json:"id,omitempty"`
	Version     string `json:"version,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	Hostname    string `json:"hostname,omitempty"`
	MachineID   string `json:"machine_id,omitempty"`
	BootID      string `json:"boot_id,omitempty"` // volatile
	FirmwareIs  string `json:"firmware_is,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
}
