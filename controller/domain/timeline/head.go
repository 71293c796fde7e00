package timeline

import (
	"bytes"
	"fmt"
	"time"
)

// Head is the end of a history as it was kept elsewhere.
type Head struct {
	MachineID string
	// Entries is the number of entries, Hash that of the last one, Time its time.
	Entries int64
	Hash    []byte
	Time    time.Time
}

// Finding is what came of comparing a head that was kept with the history.
type Finding int

// The findings.
const (
	// Kept: the history has the entry, with the hash.
	Kept Finding = iota + 1
	// LostByRestore: the database went back to a copy without the entry, and the history records that.
	LostByRestore
	// Lost: the entry is another one, or gone, and nothing explains it.
	Lost
)

// Present is what the database has of the history of a head.
type Present struct {
	// Hash is that of the entry with the head's number; nil where there is none.
	Hash []byte
	// Began is the time of the first entry; zero where there is no history.
	Began time.Time
	// Restores are those of the history, FleetRestores those of the fleet's.
	Restores, FleetRestores []Restore
}

// commitLag bounds the time between an entry's clock and its commit: the time at which a copy ends is as exact.
const commitLag = 10 * time.Second

// Compare returns what became of a head, and why, where it is not kept.
func (h Head) Compare(p Present) (Finding, string) {
	if h.Entries == 0 || p.Hash != nil && bytes.Equal(p.Hash, h.Hash) {
		return Kept, ""
	}
	for _, r := range p.Restores {
		if r.Seq <= h.Entries && !r.Time.Before(h.Time) {
			return LostByRestore, fmt.Sprintf("entries %d to %d were lost when the database went back at %s", r.Seq,
				h.Entries, r.Time.UTC().Format(time.RFC3339))
		}
	}
	for _, r := range p.FleetRestores {
		// A history that the copy did not have at all may have begun anew since.
		missing := p.Began.IsZero() || p.Began.After(r.Time)
		if missing && h.Time.After(r.Through.Add(-commitLag)) && !h.Time.After(r.Time) {
			return LostByRestore, fmt.Sprintf("the history is younger than the copy to which the database went back at %s",
				r.Time.UTC().Format(time.RFC3339))
		}
	}
	switch {
	case p.Began.IsZero():
		return Lost, "the history is gone"
	case p.Hash == nil:
		return Lost, fmt.Sprintf("the history ends before entry %d", h.Entries)
	}
	return Lost, fmt.Sprintf("entry %d has another hash", h.Entries)
}
