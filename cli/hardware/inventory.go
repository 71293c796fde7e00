// Package hardware shows what machines are made of.
package hardware

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// document is what of an agent's inventory is shown; docs/reference/api.md describes all of it.
type document struct {
	System struct {
		Vendor, Product, Serial, UUID string
	}
	CPU struct {
		Model                   string
		Sockets, Cores, Threads int
	}
	Memory struct {
		TotalBytes uint64 `json:"total_bytes"`
		Slots      int
		DIMMs      []dimm
	}
	Disks        []disk
	Arrays       []array
	NICs         []nic
	Accelerators []accelerator
	Firmware     []struct{ Component, Version string }
	BMC, TPM     *struct {
		Present bool
		Version string
	}
	OS      struct{ Name, Kernel string }
	Missing []string
}

type dimm struct {
	Locator, Bank, Type, Manufacturer, Serial string

	PartNumber string `json:"part_number"`
	SizeBytes  uint64 `json:"size_bytes"`
	SpeedMTs   int    `json:"speed_mts"`
}

type disk struct {
	Name, Model, Serial, WWN, Transport, Firmware string

	Rotational bool
	SizeBytes  uint64 `json:"size_bytes"`
}

type array struct {
	Name, Level        string
	Disks, Missing     int
	Active, Rebuilding bool
	Members            []string
}

type nic struct {
	Name, MAC, Driver, Firmware string

	LinkUp     bool `json:"link_up"`
	SpeedMbps  int  `json:"speed_mbps"`
	Neighbours []struct {
		Chassis, Port, System string

		PortDescription string `json:"port_description"`
		VLAN            int
	}
}

type accelerator struct {
	Address, Vendor, Device, Model, Serial, Driver, Firmware, Link string

	DriverVersion string `json:"driver_version"`
	MemoryBytes   uint64 `json:"memory_bytes"`
	LinkBest      string `json:"link_best"`
}

// Inventory is the sheet of `ingot machine inventory`: the machine, a table for each kind of part, the parts that could
// not be read, and the changes.
func Inventory(s view.Style, i *pb.Inventory) string {
	var doc document
	if err := json.Unmarshal(i.GetDocument(), &doc); err != nil {
		return head(s, i, doc) + "\n" + indented(i.GetDocument()) + "\n"
	}
	parts := []string{head(s, i, doc)}
	for _, table := range []*view.Table{
		dimms(doc.Memory.DIMMs), disks(doc.Disks), arrays(s, doc.Arrays), nics(doc.NICs), accelerators(doc.Accelerators),
		firmware(doc),
	} {
		if len(table.Rows) > 0 {
			parts = append(parts, table.String())
		}
	}
	if len(doc.Missing) > 0 {
		parts = append(parts, "Not read:\n"+lines(doc.Missing))
	}
	if changed := changes(s, i); changed != "" {
		parts = append(parts, changed)
	}
	return strings.Join(parts, "\n")
}

func lines(all []string) string {
	var b strings.Builder
	for _, l := range all {
		b.WriteString("  " + view.Clean(l) + "\n")
	}
	return b.String()
}

func head(s view.Style, i *pb.Inventory, doc document) string {
	f := &view.Fields{}
	f.Add("Machine", i.GetMachineId())
	f.Add("Reported", view.Time(i.GetReportedAt()))
	f.Add("Hash", i.GetHash())
	if i.GetSimulated() {
		f.Add("Simulated", s.Warn("yes, this is not real hardware"))
	}
	f.Add("System", words(doc.System.Vendor, doc.System.Product))
	f.Add("Serial", words(doc.System.Serial))
	f.Add("UUID", words(doc.System.UUID))
	if c := doc.CPU; c.Threads > 0 {
		f.Add("Processors", words(c.Model, fmt.Sprintf("(%d sockets, %d cores, %d threads)", c.Sockets, c.Cores, c.Threads)))
	}
	if m := doc.Memory; m.TotalBytes > 0 {
		modules := ""
		if m.Slots > 0 {
			modules = fmt.Sprintf("in %d of %d slots", len(m.DIMMs), m.Slots)
		}
		f.Add("Memory", words(Size(m.TotalBytes), modules))
	}
	if t := doc.TPM; t != nil {
		f.Add("TPM", present(t.Present, t.Version))
	}
	if b := doc.BMC; b != nil {
		f.Add("BMC", present(b.Present, b.Version))
	}
	f.Add("System that runs", words(doc.OS.Name, doc.OS.Kernel))
	return f.String()
}

func present(there bool, version string) string {
	if !there {
		return "none"
	}
	return cmp.Or(words(version), "there")
}

func dimms(all []dimm) *view.Table {
	t := &view.Table{Header: []string{"SLOT", "SIZE", "TYPE", "MT/S", "MAKER", "PART", "SERIAL"}}
	for _, d := range all {
		t.Add(words(d.Locator, d.Bank), Size(d.SizeBytes), words(d.Type), positive(d.SpeedMTs), words(d.Manufacturer),
			words(d.PartNumber), words(d.Serial))
	}
	return t
}

func disks(all []disk) *view.Table {
	t := &view.Table{Header: []string{"DISK", "SERIAL", "MODEL", "SIZE", "KIND", "FIRMWARE", "WWN"}}
	for _, d := range all {
		kind := d.Transport
		if d.Rotational {
			kind += " rotational"
		}
		t.Add(words(d.Name), words(d.Serial), words(d.Model), Size(d.SizeBytes), words(kind), words(d.Firmware), words(d.WWN))
	}
	return t
}

func arrays(s view.Style, all []array) *view.Table {
	t := &view.Table{Header: []string{"RAID", "LEVEL", "DISKS", "MEMBERS", "STATE"}}
	for _, a := range all {
		state := "whole"
		switch {
		case !a.Active:
			state = s.Warn("not running")
		case a.Missing > 0 && a.Rebuilding:
			state = s.Warn(fmt.Sprintf("lacks %d, being rebuilt", a.Missing))
		case a.Missing > 0:
			state = s.Warn(fmt.Sprintf("lacks %d", a.Missing))
		}
		t.Add(words(a.Name), words(a.Level), positive(a.Disks), words(strings.Join(a.Members, " ")), state)
	}
	return t
}

func nics(all []nic) *view.Table {
	t := &view.Table{Header: []string{"NIC", "MAC", "LINK", "NEIGHBOUR", "PORT", "DRIVER", "FIRMWARE"}}
	for _, n := range all {
		link := "down"
		if n.LinkUp {
			link = "up"
			if n.SpeedMbps > 0 {
				link = strconv.Itoa(n.SpeedMbps) + " Mbit/s"
			}
		}
		var systems, ports []string
		for _, x := range n.Neighbours {
			systems, ports = append(systems, cmp.Or(x.System, x.Chassis)), append(ports, x.Port)
		}
		t.Add(words(n.Name), words(n.MAC), link, words(strings.Join(systems, ", ")), words(strings.Join(ports, ", ")),
			words(n.Driver), words(n.Firmware))
	}
	return t
}

func accelerators(all []accelerator) *view.Table {
	t := &view.Table{Header: []string{"ACCELERATOR", "MODEL", "SERIAL", "MEMORY", "LINK", "DRIVER", "FIRMWARE"}}
	for _, a := range all {
		memory := ""
		if a.MemoryBytes > 0 {
			memory = Size(a.MemoryBytes)
		}
		t.Add(words(a.Address), cmp.Or(words(a.Model), words(a.Vendor+":"+a.Device)), words(a.Serial), memory,
			words(cmp.Or(a.LinkBest, a.Link)), words(a.Driver, a.DriverVersion), words(a.Firmware))
	}
	return t
}

func firmware(doc document) *view.Table {
	t := &view.Table{Header: []string{"FIRMWARE", "VERSION"}}
	for _, f := range doc.Firmware {
		t.Add(words(f.Component), words(f.Version))
	}
	return t
}

// changes are a line for each difference, the newest inventory first.
func changes(s view.Style, i *pb.Inventory) string {
	var b strings.Builder
	last := ""
	for _, c := range i.GetChanges() {
		if at := view.Time(c.GetAt()); at != last {
			b.WriteString("Changed, by the inventory of " + at + ":\n")
			last = at
		}
		mark, what := s.Warn("~"), words(c.GetField())+": "+words(cmp.Or(c.GetBefore(), "none"))+" → "+
			words(cmp.Or(c.GetAfter(), "none"))
		switch c.GetKind() {
		case "added":
			mark, what = s.Good("+"), ""
		case "removed":
			mark, what = s.Bad("-"), ""
		}
		b.WriteString("  " + mark + " " + words(c.GetPart(), c.GetItem(), what) + "\n")
	}
	if n := i.GetChangesLeftOut(); n > 0 {
		fmt.Fprintf(&b, "  and %d more\n", n)
	}
	return b.String()
}

// words joins the texts that are not empty, cleaned: they come from a machine.
func words(all ...string) string {
	var out []string
	for _, w := range all {
		if w = strings.TrimSpace(view.Clean(w)); w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, " ")
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Size is a number of bytes in binary units, with one decimal place where there is one.
func Size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + " " + units[i]
}

func indented(raw []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return view.Clean(string(raw))
	}
	return b.String()
}
