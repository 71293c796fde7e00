package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// JSON returns the document in its stable form: sorted, with empty lists as [] and times in UTC.
func (d Document) JSON() ([]byte, error) {
	b, err := json.Marshal(d.Normal())
	if err != nil {
		return nil, fmt.Errorf("encode inventory: %w", err)
	}
	return b, nil
}

// Hash returns the SHA-256, in lower-case hex, of everything in the document that isn't volatile. Volatile are the time
// of collection, the boot id, kernel names of disks and NICs, and states of links. So are usable memory, the rebuilding
// of an array, and the list of missing parts. Two documents with the same hash describe the same hardware and the same
// system on it.
func (d Document) Hash() string {
	b, err := json.Marshal(d.lasting())
	if err != nil {
		// Document holds only strings, numbers and bools, which always encode.
		panic(fmt.Sprintf("encode inventory: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Normal returns a copy whose lists are sorted and never nil.
func (d Document) Normal() Document {
	d.CollectedAt = d.CollectedAt.UTC()
	d.Memory.DIMMs = sorted(d.Memory.DIMMs, func(m DIMM) string { return m.Locator + "|" + m.Bank + "|" + m.Serial })
	d.Disks = sorted(d.Disks, func(k Disk) string { return k.Serial + "|" + k.WWN + "|" + k.Model + "|" + k.Name })
	d.Arrays = sorted(d.Arrays, func(a Array) string { return a.Name })
	d.NICs = sorted(d.NICs, func(n NIC) string { return n.MAC + "|" + n.PCI + "|" + n.Name })
	d.PCI = sorted(d.PCI, func(p PCI) string { return p.Address })
	d.Accelerators = sorted(d.Accelerators, func(a Accelerator) string { return a.Address })
	d.Firmware = sorted(d.Firmware, func(f Firmware) string { return f.Component + "|" + f.Version })
	d.Missing = sorted(d.Missing, func(s string) string { return s })
	return d
}

func (d Document) lasting() Document {
	d = d.Normal()
	d.CollectedAt = time.Time{}
	d.Memory.UsableBytes = 0
	d.OS.BootID = ""
	// Whether neighbours were listened for is known: a machine without any is another statement.
	d.Missing = slices.DeleteFunc(d.Missing, func(s string) bool { return !strings.HasPrefix(s, neighbours+": ") })
	for i := range d.Disks {
		d.Disks[i].Name = ""
	}
	for i := range d.Arrays {
		d.Arrays[i].Members, d.Arrays[i].Rebuilding = nil, false
	}
	for i := range d.NICs {
		d.NICs[i].Name, d.NICs[i].LinkUp, d.NICs[i].SpeedMbps = "", false, 0
		d.NICs[i].Neighbours = slices.Clone(d.NICs[i].Neighbours)
		for j := range d.NICs[i].Neighbours {
			d.NICs[i].Neighbours[j].Description, d.NICs[i].Neighbours[j].Addresses = "", nil
		}
	}
	for i := range d.Accelerators {
		d.Accelerators[i].Link = ""
	}
	return d
}

func sorted[T any](in []T, key func(T) string) []T {
	out := make([]T, len(in))
	copy(out, in)
	slices.SortStableFunc(out, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return out
}
