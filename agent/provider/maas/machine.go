package maas

import (
	"slices"
	"strings"
	"time"

	"github.com/canonical/gomaasclient/entity"

	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// Machine is what of a machine in MAAS is of use here.
type Machine struct {
	SystemID, Hostname, Owner string
	Status                    maasstatus.Status
	StatusName, StatusMessage string
	// Power is "on", "off", "unknown" or "error", as MAAS has it cached.
	Power, PowerType string
	OSystem, Series  string
	Annotations      map[string]string
	Locked           bool
	// Hardware is what MAAS has found of it when it was commissioned.
	Hardware  hwid.Facts
	CPUs      int
	MemoryMiB int64
	Disks     []Disk
	BootDisk  Disk
	Layout    string
	NICs      []NIC
	Boot      NIC
	HWSync    bool
	SyncEvery time.Duration
	LastSync  time.Time
}

// Disk is one block device.
type Disk struct {
	ID           int
	Name, Serial string
	Size         int64
	Partitions   int
}

// NIC is one network interface.
type NIC struct {
	ID        int
	Name, MAC string
	Tags      []string
	Links     []Link
	// Subnets that MAAS has seen it on.
	Subnets []int
}

// Link ties an interface to a subnet.
type Link struct {
	ID int
	// Mode is "auto", "dhcp", "static" or "link_up".
	Mode   string
	Subnet int
}

// Deployed returns the deployed system, such as "ubuntu/noble".
func (m *Machine) Deployed() string {
	if m.Status != maasstatus.Deployed || m.OSystem == "" {
		return ""
	}
	return m.OSystem + "/" + m.Series
}

// State is what its status means; a machine that is not there is Absent.
func (m *Machine) State() maasstatus.State {
	if m == nil {
		return maasstatus.StateAbsent
	}
	row, _ := maasstatus.Of(m.Status)
	return row.State
}

// moves reports whether MAAS is at work on it.
func (m *Machine) moves() bool {
	row, _ := maasstatus.Of(m.Status)
	return row.Moves
}

func (m *Machine) is(list ...maasstatus.Status) bool { return slices.Contains(list, m.Status) }

func fromEntity(e *entity.Machine) *Machine {
	m := &Machine{
		SystemID: e.SystemID, Hostname: e.Hostname, Owner: e.Owner, Status: maasstatus.Status(e.Status),
		StatusName:    e.StatusName,
		StatusMessage: e.StatusMessage, Power: e.PowerState, PowerType: e.PowerType, OSystem: e.OSystem,
		Series:      e.DistroSeries,
		Annotations: e.WorkloadAnnotations, Locked: e.Locked, Hardware: hardwareOf(e.HardwareInfo), CPUs: e.CPUCount,
		MemoryMiB: e.Memory,
		HWSync:    e.EnableHwSync, SyncEvery: time.Duration(e.HwSyncInterval) * time.Second,
		LastSync: time.Time(e.HwLastSync),
		BootDisk: diskOf(e.BootDisk), Boot: nicOf(e.BootInterface), Layout: layoutOf(e),
	}
	for _, d := range e.PhysicalBlockDeviceSet {
		m.Disks = append(m.Disks, diskOf(d))
	}
	for _, n := range e.InterfaceSet {
		m.NICs = append(m.NICs, nicOf(n))
	}
	return m
}

// hardwareOf leaves out what firmware has not set; MAAS writes "Unknown" for that.
func hardwareOf(info map[string]string) hwid.Facts {
	return hwid.Facts{Serial: hwid.Text(info["system_serial"]), Board: hwid.Text(info["mainboard_serial"]),
		Chassis: hwid.Text(info["chassis_serial"])}
}

func diskOf(d entity.BlockDevice) Disk {
	return Disk{ID: d.ID, Name: d.Name, Serial: d.Serial, Size: d.Size, Partitions: len(d.Partitions)}
}

func nicOf(n entity.NetworkInterface) NIC {
	out := NIC{ID: n.ID, Name: n.Name, MAC: strings.ToLower(n.MACAddress), Tags: n.Tags}
	for _, l := range n.Links {
		out.Links = append(out.Links, Link{ID: l.ID, Mode: l.Mode, Subnet: l.Subnet.ID})
	}
	for _, d := range n.Discovered {
		if d.Subnet.ID != 0 {
			out.Subnets = append(out.Subnets, d.Subnet.ID)
		}
	}
	return out
}

// layoutOf returns the storage layout that a machine shows: MAAS doesn't name it.
func layoutOf(e *entity.Machine) string {
	switch {
	case len(e.BCaches) > 0:
		return "bcache"
	case len(e.VolumeGroups) > 0:
		return "lvm"
	case len(e.BootDisk.Partitions) > 0:
		return "flat"
	}
	return "blank"
}
