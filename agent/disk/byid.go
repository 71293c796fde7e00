package disk

import (
	"strings"

	"github.com/ingot-metal/ingot/internal/disk"
)

// byID returns the names that udev makes below /dev/disk/by-id, for systems without udev: an installer is one. The
// rules are those of systemd's rules.d/60-persistent-storage.rules; ata_id.c has those for ATA drives. Names that need
// more than sysfs has are left out.
func (s scanner) byID(d disk.Device) []string {
	var names []string
	add := func(name string) { names = append(names, "/dev/disk/by-id/"+name) }
	switch {
	case strings.HasPrefix(d.Name, "nvme"):
		if d.WWN != "" {
			add("nvme-" + replaced(d.WWN))
		}
		if d.Model != "" && d.Serial != "" {
			add("nvme-" + replaced(d.Model) + "_" + replaced(d.Serial))
			if nsid := s.text("sys/block/" + d.Name + "/nsid"); nsid != "" {
				add("nvme-" + replaced(d.Model) + "_" + replaced(d.Serial) + "_" + nsid)
			}
		}
	case strings.HasPrefix(d.Name, "vd"):
		if d.Serial != "" {
			add("virtio-" + replaced(d.Serial))
		}
	case strings.HasPrefix(d.Name, "sd"):
		naa, isNAA := strings.CutPrefix(d.WWN, "naa.")
		if isNAA {
			add("wwn-0x" + naa)
		}
		if model, serial, ok := s.ataNames(d.Name); ok {
			add("ata-" + model + "_" + serial)
		} else if isNAA {
			add("scsi-3" + naa)
		}
	}
	return names
}

// identify is the data of IDENTIFY DEVICE (ACS-4, 7.13.7) in the ATA Information page (SAT-4, 12.4.2: from byte 60),
// nil where a disk has none. SCSI cuts the model to 16 characters and the firmware to 4; here they are whole.
func (s scanner) identify(name string) []byte {
	page := s.raw("sys/block/" + name + "/device/vpd_pg89")
	if len(page) < 60+512 {
		return nil
	}
	return page[60:]
}

// ataNames reads model and serial number (words 27 to 46 and 10 to 19, bytes swapped).
func (s scanner) ataNames(name string) (model, serial string, ok bool) {
	id := s.identify(name)
	if id == nil {
		return "", "", false
	}
	model, serial = joined(swapped(id[54:94])), joined(swapped(id[20:40]))
	return model, serial, model != "" && serial != ""
}

func swapped(b []byte) string {
	out := make([]byte, len(b))
	for i := 0; i+1 < len(b); i += 2 {
		out[i], out[i+1] = b[i+1], b[i]
	}
	return strings.Trim(string(out), " \x00")
}

// joined puts one underscore for each run of spaces, as util_replace_whitespace does.
func joined(s string) string { return replaced(strings.Join(strings.Fields(s), "_")) }

// replaced puts an underscore for each character that a name of udev can't have (util_replace_chars).
func replaced(s string) string {
	return strings.Map(func(r rune) rune {
		if r > 127 || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' ||
			strings.ContainsRune("#+-.:=@_", r) {
			return r
		}
		return '_'
	}, s)
}
