package erase

import (
	"encoding/binary"
	"fmt"
)

// Commands that report areas which cannot be addressed. READ NATIVE MAX ADDRESS (EXT) is of the HPA feature set, DEVICE
// CONFIGURATION IDENTIFY of the DCO feature set. Both are in ACS-2 (7.32, 7.33, 7.10.3) and obsolete since ACS-3. GET
// NATIVE MAX ADDRESS EXT of the AMAC feature set is in ACS-3 (7.1.2).
const (
	ataReadNativeMaxExt = 0x27
	ataReadNativeMax    = 0xf8
	ataAccessibleMax    = 0x78
	ataConfiguration    = 0xb1
	configIdentify      = 0xc2
)

// hidden names the areas of the disk that no method but the device's own reaches, and what could not be found out.
func (c Config) hidden() []string {
	switch {
	case c.Disk.NVMe() != nil:
		return hiddenNVMe(c.Disk.NVMe())
	case c.Disk.ATA() != nil:
		return hiddenATA(c.Disk.ATA())
	}
	return []string{"hidden areas were not looked for: the disk takes neither ATA nor NVMe commands"}
}

// ataSize is the drive's size in sectors and its feature sets of the above, from its identification.
type ataSize struct {
	sectors             uint64
	ext, hpa, dco, amac bool
}

func readATASize(p PassThrough) (ataSize, error) {
	id := make([]byte, 512)
	if err := p.ATA(ATACommand{Command: ataIdentify, Data: id, In: true, Timeout: quick}); err != nil {
		return ataSize{}, fmt.Errorf("identify: %w", err)
	}
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(id[2*n:]) }
	// A word of feature sets counts when its bits 15:14 are 01.
	valid := func(w uint16) bool { return w>>14 == 1 }
	s := ataSize{
		hpa: word(82)&(1<<10) != 0, ext: word(83)&(1<<10) != 0, dco: valid(word(83)) && word(83)&(1<<11) != 0,
		amac: word(86)>>15 == 1 && valid(word(119)) && word(119)&(1<<8) != 0,
	}
	s.sectors = uint64(binary.LittleEndian.Uint32(id[120:])) // words 60 and 61
	if s.ext {
		s.sectors = binary.LittleEndian.Uint64(id[200:]) // words 100 to 103
	}
	return s, nil
}

func hiddenATA(p PassThrough) []string {
	s, err := readATASize(p)
	if err != nil {
		return []string{fmt.Sprintf("hidden areas were not looked for: %v", err)}
	}
	var out []string
	note := func(name string, last uint64, err error) {
		switch {
		case err != nil:
			out = append(out, fmt.Sprintf("%s: the drive does not tell: %v", name, err))
		case last+1 > s.sectors:
			out = append(out, fmt.Sprintf("%s: %d sectors behind the %d that can be addressed were neither read nor overwritten",
				name,
				last+1-s.sectors, s.sectors))
		}
	}
	last := uint64(0)
	switch {
	case s.amac:
		err = p.ATA(ATACommand{Command: ataAccessibleMax, Ext: true, Timeout: quick, LBA: &last})
		note("accessible max address", last, err)
	case s.hpa && s.ext:
		err = p.ATA(ATACommand{Command: ataReadNativeMaxExt, Ext: true, Timeout: quick, LBA: &last})
		note("host protected area (HPA)", last, err)
	case s.hpa:
		err = p.ATA(ATACommand{Command: ataReadNativeMax, Timeout: quick, LBA: &last})
		note("host protected area (HPA)", last, err)
	}
	if s.dco {
		data := make([]byte, 512)
		err := p.ATA(ATACommand{Command: ataConfiguration, Feature: configIdentify, Data: data, In: true, Timeout: quick})
		note("device configuration overlay (DCO)", binary.LittleEndian.Uint64(data[6:]), err) // words 3 to 6
	}
	return out
}

// hiddenNVMe returns unallocated capacity (UNVMCAP, bytes 311:296 of the controller's identification) and namespaces
// that are attached to no controller. The latter are those of Identify CNS 10h without those of CNS 02h, where the
// controller manages namespaces (OACS bit 3).
func hiddenNVMe(q AdminQueue) []string {
	id, err := identify(q, cnsController, 0)
	if err != nil {
		return []string{fmt.Sprintf("hidden areas were not looked for: %v", err)}
	}
	if binary.LittleEndian.Uint16(id[256:])&8 == 0 {
		return nil
	}
	var out []string
	if free := binary.LittleEndian.Uint64(id[296:]); free > 0 {
		out = append(out, fmt.Sprintf("%d bytes of the NVM subsystem belong to no namespace", free))
	}
	allocated, err := identify(q, cnsAllocated, 0)
	active, activeErr := identify(q, cnsActive, 0)
	if err != nil || activeErr != nil {
		return append(out, "the controller does not list its namespaces")
	}
	if n, m := namespaces(allocated), namespaces(active); n > m {
		out = append(out, fmt.Sprintf("%d namespaces are attached to no controller here and were not read", n-m))
	}
	return out
}

// namespaces counts the entries of a namespace list, which ends with 0.
func namespaces(list []byte) (n int) {
	for at := 0; at+4 <= len(list) && binary.LittleEndian.Uint32(list[at:]) != 0; at += 4 {
		n++
	}
	return n
}
