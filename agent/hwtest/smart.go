package hwtest

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// warnings are the bits of Critical Warning (NVM Express Base Specification 2.0, figure 207).
var warnings = []string{"the spare is used up", "the temperature is out of bounds", "reliability is degraded",
	"the medium is read only", "the backup of volatile memory has failed", "persistent memory is unreliable"}

// NVMeHealth reads the log page SMART / Health Information.
func NVMeHealth(page []byte) Health {
	if len(page) < 512 {
		return Health{PercentUsed: -1, Why: "it says nothing"}
	}
	var why []string
	for bit, w := range warnings {
		if page[0]&(1<<bit) != 0 {
			why = append(why, w)
		}
	}
	if spare, least := page[3], page[4]; spare < least {
		why = append(why, fmt.Sprintf("%d %% spare, and %d %% is the least", spare, least))
	}
	h := Health{Failing: len(why) > 0, PercentUsed: int(page[5])}
	why = append(why, fmt.Sprintf("%d media errors", binary.LittleEndian.Uint64(page[160:])))
	h.Why = strings.Join(why, ", ")
	return h
}

// The registers after SMART RETURN STATUS (ACS-3, 7.48.8): C24Fh is well, 2CF4h is a threshold that was exceeded.
const (
	ataGood    = 0xc24f
	ataFailing = 0x2cf4
)

// ATAHealth reads the LBA registers after SMART RETURN STATUS.
func ATAHealth(lba uint64) (Health, error) {
	switch lba >> 8 & 0xffff {
	case ataGood:
		return Health{PercentUsed: -1, Why: "no threshold is exceeded"}, nil
	case ataFailing:
		return Health{Failing: true, PercentUsed: -1, Why: "a threshold is exceeded: the drive expects to fail"}, nil
	}
	return Health{}, fmt.Errorf("the drive answered %06x", lba)
}
