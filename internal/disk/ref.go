package disk

import (
	"fmt"
	"slices"
	"strings"
)

// Ref names a disk that was chosen, so that it is found again and no other disk is taken for it.
type Ref struct {
	// ID is Device.ID.
	ID string `json:"id"`
	// Seqs is Device.Seqs. They tell disks of one ID apart, and a disk from its successor under the same name.
	Seqs []uint64 `json:"seqs,omitempty"`
}

// Ref returns what the disk is found again by, as long as the machine is not restarted.
func (d Device) Ref() Ref { return Ref{ID: d.ID(), Seqs: d.Seqs} }

// Is reports whether the disk is the one that was chosen.
func (r Ref) Is(d Device) bool {
	return d.ID() == r.ID && (len(r.Seqs) == 0 || len(d.Seqs) == 0 ||
		slices.ContainsFunc(d.Seqs, func(s uint64) bool { return slices.Contains(r.Seqs, s) }))
}

// Find returns the disk that was chosen, under whatever name it has now. It fails when there is not exactly one.
func Find(all []Device, r Ref) (Device, error) {
	var found []Device
	var names []string
	replaced := 0
	for _, d := range all {
		switch {
		case r.Is(d):
			found = append(found, d)
		case d.ID() == r.ID:
			replaced++
		}
		names = append(names, d.String())
	}
	list := strings.Join(names, "; ")
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && replaced > 0:
		return Device{}, fmt.Errorf("the disk called %s was removed or replaced since it was chosen; there are: %s", r.ID,
			list)
	}
	return Device{}, fmt.Errorf("%d disks are called %s, not one; there are: %s", len(found), r.ID, list)
}
