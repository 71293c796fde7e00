// Package position records how far a controller has seen the database get, and checks that the database still has all
// of that.
//
// A promoted standby may lack the last moments of its primary, and a restored copy may lack hours. What a controller
// has seen committed is then missing: an operation at some version, a grant under some number, or its own beat, a
// number that it counts up about once a second. A beat that is there proves all that was committed before it, so that
// only what came after the last beat is remembered. The beat is kept in a file too, for the next start of the
// controller.
//
// Places in the WAL would not do: a synchronous standby may lack WAL of transactions without an answer to a client.
// Soon after a promotion the new history is longer than the old one.
package position

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Mark is a beat that was committed.
type Mark struct {
	// Incarnation is the database's. A mark of another incarnation does not count.
	Incarnation  string    `json:"incarnation"`
	ControllerID string    `json:"controller_id"`
	Beat         int64     `json:"beat"`
	At           time.Time `json:"at"`
}

// Unknown is the beat of a controller that the database does not know.
const Unknown = -1

// MarkLife is how long a mark of an earlier start counts: the rows of controllers that have been gone for long are
// deleted.
const MarkLife = 6 * 24 * time.Hour

// Lost returns what the database lacks of a mark, given the stored beat of the mark's controller; empty when it lacks
// nothing.
func (m Mark) Lost(incarnation string, stored int64, now time.Time) string {
	switch {
	case m.Beat == 0 || m.Incarnation != incarnation || stored >= m.Beat:
		return ""
	case stored == Unknown && now.Sub(m.At) > MarkLife:
		return ""
	case stored == Unknown:
		return fmt.Sprintf("controller %s is not known, and was at %s", m.ControllerID, stamp(m.At))
	}
	return fmt.Sprintf("controller %s stands at beat %d, and had committed %d at %s", m.ControllerID, stored, m.Beat,
		stamp(m.At))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Seen is what was seen committed since a beat.
type Seen struct {
	// Operations are the highest versions seen, and Grants the highest numbers of commands' grants.
	Operations, Grants map[string]int64
}

// most bounds the operations that are remembered between two beats. A controller commits far less in that time.
const most = 100_000

// Note adds an operation at a version, and a command granted under a number where there is one.
func (s *Seen) Note(operationID string, version int64, commandID string, grantSeq int64) {
	if s.Operations == nil {
		s.Operations, s.Grants = map[string]int64{}, map[string]int64{}
	}
	if len(s.Operations) >= most {
		return
	}
	s.Operations[operationID] = max(s.Operations[operationID], version)
	if commandID != "" && grantSeq > 0 {
		s.Grants[commandID] = max(s.Grants[commandID], grantSeq)
	}
}

// Add adds all of another.
func (s *Seen) Add(o Seen) {
	for id, version := range o.Operations {
		s.Note(id, version, "", 0)
	}
	for id, seq := range o.Grants {
		s.Grants[id] = max(s.Grants[id], seq)
	}
}

// Pairs are a map's keys and values, in the order of the keys.
func Pairs(m map[string]int64) (keys []string, values []int64) {
	keys = slices.Sorted(maps.Keys(m))
	for _, k := range keys {
		values = append(values, m[k])
	}
	return keys, values
}

// named is how many ids a message names.
const named = 3

// Missing returns a text on the missing operations and grants; empty when none is.
func Missing(operations, commands []string) string {
	var parts []string
	if n := len(commands); n > 0 {
		parts = append(parts, fmt.Sprintf("%d grants that were given are missing (%s)", n, some(commands)))
	}
	if n := len(operations); n > 0 {
		parts = append(parts, fmt.Sprintf("%d operations are missing or older than they were (%s)", n, some(operations)))
	}
	return strings.Join(parts, "; ")
}

func some(ids []string) string {
	if len(ids) > named {
		return strings.Join(ids[:named], ", ") + ", …"
	}
	return strings.Join(ids, ", ")
}
