package disks

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// TestPassThrough16 compares with the CDBs of SAT-4, 12.2.2.3: the protocol and the extend bit, then CK_COND, the
// direction and the length in blocks.
func TestPassThrough16(t *testing.T) {
	t.Parallel()
	var last uint64
	for name, c := range map[string]struct {
		cmd  erase.ATACommand
		want []byte
	}{
		"identify": {erase.ATACommand{Command: 0xec, Data: make([]byte, 512), In: true},
			[]byte{0x85, 8, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0}},
		"native max": {erase.ATACommand{Command: 0x27, Ext: true, LBA: &last},
			[]byte{0x85, 7, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x27, 0}},
		"DCO": {erase.ATACommand{Command: 0xb1, Feature: 0xc2, Data: make([]byte, 512), In: true},
			[]byte{0x85, 8, 0x0e, 0, 0xc2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xb1, 0}},
		"unlock": {erase.ATACommand{Command: 0xf2, Data: make([]byte, 512)},
			[]byte{0x85, 10, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf2, 0}},
		"erase ready": {erase.ATACommand{Command: 0xf3}, []byte{0x85, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf3, 0}},
	} {
		if got, _ := passThrough16(c.cmd); !slices.Equal(got[:], c.want) {
			t.Errorf("%s: % x, want % x", name, got, c.want)
		}
	}
}

// TestAddressInSenseData: the descriptor of SAT-4 12.2.2.7 and the fixed format of 12.2.2.8, which libata returns where
// the device's D_SENSE is 0 (drivers/ata/libata-scsi.c, ata_gen_passthru_sense).
func TestAddressInSenseData(t *testing.T) {
	t.Parallel()
	descriptor := func(ext, errs, status byte) []byte {
		return []byte{
			0x72, 1, 0, 0x1d, 0, 0, 0, 14,
			9, 12, ext, errs, 0, 0, 0x74, 0xaf, 0x01, 0x70, 0x00, 0x6d, 0x4e, status,
		}
	}
	fixed := func(flags, status byte) []byte {
		return []byte{0x70, 0, 1, 0, status, 0x4e, 0, 10, flags, 0xaf, 0x70, 0x6d, 0, 0x1d, 0, 0, 0, 0}
	}
	for name, c := range map[string]struct {
		sense []byte
		want  uint64
		fails bool
	}{
		"48 bits":              {descriptor(1, 0, 0x50), 0x0001746d70af, false},
		"28 bits":              {descriptor(0, 0, 0x50), 0x0e6d70af, false},
		"aborted":              {descriptor(1, 4, 0x51), 0, true},
		"fixed, 28 bits":       {fixed(0, 0x50), 0x0e6d70af, false},
		"fixed, 48 bits":       {fixed(0x80, 0x50), 0x6d70af, false},
		"fixed, more than fit": {fixed(0xa0, 0x50), 0, true},
		"fixed, aborted":       {fixed(0x80, 0x51), 0, true},
		"another sense":        {[]byte{0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0}, 0, true},
		"none":                 {nil, 0, true},
	} {
		if got, err := addressIn(c.sense); got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %#x, %v; want %#x", name, got, err, c.want)
		}
	}
}

// TestCountInSenseData: the same descriptors. SANITIZE STATUS EXT reports its state in bits 15 and 14.
func TestCountInSenseData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sense []byte
		want  uint16
		fails bool
	}{
		"descriptor": {[]byte{0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 1, 0, 0x40, 0x07, 0, 0, 0, 0, 0, 0, 0, 0x50},
			0x4007, false},
		"fixed":                {[]byte{0x70, 0, 1, 0, 0x50, 0, 7, 10, 0x80, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0}, 7, false},
		"fixed, more than fit": {[]byte{0x70, 0, 1, 0, 0x50, 0, 7, 10, 0xc0, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0}, 0, true},
		"none":                 {nil, 0, true},
	} {
		if got, err := countIn(c.sense); got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %#x, %v; want %#x", name, got, err, c.want)
		}
	}
}
