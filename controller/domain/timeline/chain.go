package timeline

import (
	"bytes"
	"fmt"
	"time"
)

// Break is the first place at which a chain is not what was written.
type Break struct {
	Seq int64
	Why string
}

func (b *Break) Error() string { return fmt.Sprintf("entry %d: %s", b.Seq, b.Why) }

// Chain walks a machine's entries in order. The zero value stands before the first one.
type Chain struct {
	MachineID string
	// Seq, Time and Hash are those of the last good entry; Seq is 0 before the first.
	Seq  int64
	Time time.Time
	Hash []byte
}

// Next takes the next entry, or returns why it cannot be the next one.
func (c *Chain) Next(e Entry) *Break {
	if why := c.wrong(e); why != "" {
		return &Break{Seq: c.Seq + 1, Why: why}
	}
	c.Seq, c.Time, c.Hash = e.Seq, e.Time, e.Hash
	return nil
}

func (c *Chain) wrong(e Entry) string {
	switch {
	case e.MachineID != c.MachineID:
		return fmt.Sprintf("belongs to machine %q", e.MachineID)
	case e.Seq != c.Seq+1:
		return fmt.Sprintf("is missing; the next one there is %d", e.Seq)
	case !bytes.Equal(e.Prev, c.Hash):
		return "does not follow the entry before: its prev_hash is another"
	case !bytes.Equal(e.Sum(), e.Hash):
		return "has been changed: its hash does not fit its content"
	case e.Time.Before(c.Time):
		return "is older than the entry before"
	}
	return ""
}
