package inventory

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/agent/inventory/dmi"
	"github.com/ingot-metal/ingot/internal/hwid"
)

func (c collector) memory(tables []dmi.Structure) Memory {
	m := Memory{UsableBytes: c.memTotal()}
	m.DIMMs, m.Slots = dimms(tables)
	for _, d := range m.DIMMs {
		m.TotalBytes += d.SizeBytes
	}
	if m.TotalBytes == 0 {
		m.TotalBytes = c.memoryBlocks()
	}
	if m.TotalBytes == 0 {
		m.TotalBytes = m.UsableBytes
	}
	if m.TotalBytes == 0 {
		c.miss("memory", "nothing to read")
	}
	return m
}

// memTotal is MemTotal of /proc/meminfo, which is in kibibytes whatever its unit reads.
func (c collector) memTotal() uint64 {
	for line := range strings.SplitSeq(c.text("proc/meminfo"), "\n") {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}

// memoryBlocks counts what the firmware gave to the kernel (kernel, Documentation/admin-guide/mm/memory-hotplug.rst).
func (c collector) memoryBlocks() uint64 {
	size, err := strconv.ParseUint(c.text("sys/devices/system/memory/block_size_bytes"), 16, 64)
	if err != nil {
		return 0
	}
	var blocks uint64
	for _, name := range c.names("sys/devices/system/memory") {
		if numbered(name, "memory") {
			blocks++
		}
	}
	return size * blocks
}

// tables reads the SMBIOS tables that the kernel exports to root, as far as they can be read.
func (c collector) tables() []dmi.Structure {
	table, err := c.limited("sys/firmware/dmi/tables/DMI", mostTable)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.miss("dimms", "no SMBIOS tables in sysfs")
		return nil
	case err != nil:
		c.miss("dimms", "SMBIOS tables are not readable without root")
		return nil
	}
	structures, err := dmi.Walk(table)
	if err != nil {
		c.miss("dimms", "%v", err)
	}
	return structures
}

// mostTable bounds the bytes that are read of the SMBIOS tables. Real ones have some ten thousand.
const mostTable = 1 << 20

// dimms are the modules that are fitted, and the number of slots for them.
func dimms(tables []dmi.Structure) (fitted []DIMM, slots int) {
	for _, s := range tables {
		if s.Type != dmi.TypeMemoryDevice {
			continue
		}
		slots++
		m := s.Module()
		if m.Bytes == 0 {
			continue
		}
		fitted = append(fitted, DIMM{
			Locator: m.Locator, Bank: m.Bank, SizeBytes: m.Bytes, SpeedMTs: m.SpeedMTs, Type: m.Type,
			Manufacturer: hwid.Text(m.Manufacturer), PartNumber: hwid.Text(m.PartNumber), Serial: hwid.Text(m.Serial),
		})
	}
	return fitted, slots
}
