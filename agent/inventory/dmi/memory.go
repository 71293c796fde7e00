package dmi

import "fmt"

// Module is a memory device (type 17, DSP0134 section 7.18). Bytes is 0 for an empty slot and an unknown size.
type Module struct {
	Locator, Bank, Type              string
	Bytes                            uint64
	SpeedMTs                         int // 0 is unknown
	Manufacturer, PartNumber, Serial string
}

// Module reads a structure of TypeMemoryDevice.
func (s Structure) Module() Module {
	return Module{
		Locator: s.Text(0x10), Bank: s.Text(0x11), Type: memoryType(s.Byte(0x12)), Bytes: s.moduleBytes(),
		SpeedMTs: s.moduleSpeed(), Manufacturer: s.Text(0x17), Serial: s.Text(0x18), PartNumber: s.Text(0x1a),
	}
}

// moduleBytes reads Size, in MiB or KiB, and Extended Size, in MiB.
func (s Structure) moduleBytes() uint64 {
	size := s.Word(0x0c)
	switch {
	case size == 0xffff:
		return 0
	case size == 0x7fff && s.Has(0x1c, 4):
		return uint64(s.Dword(0x1c)&0x7fffffff) << 20
	case size&0x8000 != 0:
		return uint64(size&0x7fff) << 10
	}
	return uint64(size) << 20
}

// moduleSpeed reads Speed, and Extended Speed where it does not fit.
func (s Structure) moduleSpeed() int {
	if speed := s.Word(0x15); speed != 0xffff {
		return int(speed)
	}
	return int(s.Dword(0x54) & 0x7fffffff)
}

// memoryTypes is table 78 of section 7.18.2.
var memoryTypes = map[byte]string{
	0x01: "Other", 0x02: "Unknown", 0x03: "DRAM", 0x04: "EDRAM", 0x05: "VRAM", 0x06: "SRAM", 0x07: "RAM", 0x08: "ROM",
	0x09: "FLASH", 0x0a: "EEPROM", 0x0b: "FEPROM", 0x0c: "EPROM", 0x0d: "CDRAM", 0x0e: "3DRAM", 0x0f: "SDRAM",
	0x10: "SGRAM", 0x11: "RDRAM", 0x12: "DDR", 0x13: "DDR2", 0x14: "DDR2 FB-DIMM", 0x18: "DDR3", 0x19: "FBD2",
	0x1a: "DDR4", 0x1b: "LPDDR", 0x1c: "LPDDR2", 0x1d: "LPDDR3", 0x1e: "LPDDR4", 0x1f: "Logical non-volatile device",
	0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3",
}

func memoryType(code byte) string {
	if name, ok := memoryTypes[code]; ok {
		return name
	}
	return fmt.Sprintf("type %02xh", code)
}

// Component is a piece of firmware (type 45, section 7.46).
type Component struct{ Name, Version string }

// Component reads a structure of TypeFirmware.
func (s Structure) Component() Component { return Component{Name: s.Text(0x04), Version: s.Text(0x05)} }
