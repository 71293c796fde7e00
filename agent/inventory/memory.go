package inventory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/siderolabs/go-smbios/smbios"
)

func (c collector) memory() Memory {
	m := Memory{UsableBytes: c.memTotal()}
	dimms, err := c.dimms()
	if err != nil {
		c.miss("dimms", "%v", err)
	}
	m.DIMMs = dimms
	for _, d := range dimms {
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

// memTotal is MemTotal of /proc/meminfo, which is in kibibytes whatever it says.
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

// dimms reads the SMBIOS tables that the kernel exports to root.
func (c collector) dimms() (dimms []DIMM, err error) {
	tables, err := os.ReadFile(c.path("sys/firmware/dmi/tables/DMI"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("no SMBIOS tables in sysfs")
	}
	if err != nil {
		return nil, errors.New("SMBIOS tables are not readable without root")
	}
	// The tables are the firmware's, and the decoder trusts its offsets more than it should.
	defer func() {
		if v := recover(); v != nil {
			dimms, err = nil, fmt.Errorf("decode SMBIOS tables: %v", v)
		}
	}()
	bios, err := smbios.Decode(bytes.NewReader(tables), smbios.Version{Major: 3})
	if err != nil {
		return nil, fmt.Errorf("decode SMBIOS tables: %w", err)
	}
	return fitted(bios), nil
}

// fitted walks the raw structures beside the decoded ones, because the size of a module of 64 GiB or more needs
// 32 bits, of which the decoder keeps 16.
func fitted(bios *smbios.SMBIOS) []DIMM {
	var dimms []DIMM
	n := 0
	for _, s := range bios.Structures {
		if s.Header.Type != 17 || n >= len(bios.MemoryDevices) {
			continue
		}
		dev := bios.MemoryDevices[n]
		n++
		size := dimmSize(s.Formatted)
		if size == 0 {
			continue
		}
		dimms = append(dimms, DIMM{
			Locator: dev.DeviceLocator, Bank: dev.BankLocator, SizeBytes: size, SpeedMTs: dimmSpeed(s.Formatted),
			Type: dimmType(s.Formatted, dev.MemoryType.String()), Manufacturer: dmiValue(dev.Manufacturer),
			PartNumber: dmiValue(dev.PartNumber), Serial: dmiValue(dev.SerialNumber),
		})
	}
	return dimms
}

// dimmSize reads Size and Extended Size (SMBIOS specification 3.7, section 7.18, offsets 0Ch and 1Ch). formatted
// starts after the header of four bytes. 0 is an empty slot or an unknown size.
func dimmSize(formatted []byte) uint64 {
	if len(formatted) < 0x0e-4 {
		return 0
	}
	size := binary.LittleEndian.Uint16(formatted[0x0c-4:])
	switch {
	case size == 0 || size == 0xffff:
		return 0
	case size == 0x7fff && len(formatted) >= 0x20-4:
		return uint64(binary.LittleEndian.Uint32(formatted[0x1c-4:])&0x7fffffff) << 20
	case size&0x8000 != 0:
		return uint64(size&0x7fff) << 10
	}
	return uint64(size) << 20
}

// dimmSpeed reads Speed (offset 15h); 0 is unknown, and FFFFh stands for a later field that no module needs yet.
func dimmSpeed(formatted []byte) int {
	if len(formatted) < 0x17-4 {
		return 0
	}
	speed := binary.LittleEndian.Uint16(formatted[0x15-4:])
	if speed == 0xffff {
		return 0
	}
	return int(speed)
}

// dimmType reads Memory Type (offset 12h, table of section 7.18.2), of which the decoder knows the older ones.
func dimmType(formatted []byte, decoded string) string {
	newer := map[byte]string{0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3"}
	if len(formatted) > 0x12-4 && newer[formatted[0x12-4]] != "" {
		return newer[formatted[0x12-4]]
	}
	return decoded
}
