package explain

import "strings"

// Input is a set of the sources that an explanation may be read from.
type Input uint8

// The sources of facts.
const (
	// Past is stored events: what was sent, acknowledged, granted, answered, asked for or observed, each with its time.
	Past Input = 1 << iota
	// Present is what holds at this moment and may be otherwise in the next: open sessions, capabilities, power,
	// segments that are served. It proves nothing about the past.
	Present
	// Record is what the controllers decided and store themselves: phases, plans, registrations, flags, the freeze.
	Record
)

// String returns the names of the sources, as docs/reference/why-rules.md shows them.
func (i Input) String() string {
	var out []string
	for _, n := range []struct {
		input Input
		name  string
	}{{Past, "past"}, {Present, "present"}, {Record, "record"}} {
		if i&n.input != 0 {
			out = append(out, n.name)
		}
	}
	return strings.Join(out, ", ")
}
