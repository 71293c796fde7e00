package disk

import (
	"fmt"
	"slices"
	"strings"
)

// Candidate is a disk and why it was not chosen; Why is empty for one that could have been.
type Candidate struct {
	Device Device
	Why    string
}

// NoUniqueMatch is the error of a rule that fits no disk, or more than one.
type NoUniqueMatch struct {
	Rule       Rule
	Candidates []Candidate
	// For is where the disk was to be mounted; "": the system's disk was looked for.
	For string
	// Mirror is the rule of the second disk where a pair was looked for; nil: one disk was.
	Mirror *Rule
	// Twins reports that the candidates were taken for paths to one disk, by WWN and serial number, and hold different
	// data.
	Twins bool
}

// None reports whether no disk fits, rather than several.
func (e *NoUniqueMatch) None() bool {
	for _, c := range e.Candidates {
		if c.Why == "" {
			return false
		}
	}
	return true
}

// Error lists every disk of the machine with what spoke against it.
func (e *NoUniqueMatch) Error() string {
	if e.Twins && len(e.Candidates) == 2 {
		return fmt.Sprintf(
			"%s and %s have one WWN and one serial number and hold different data: they are two disks, and no rule "+
				"tells them apart", e.Candidates[0].Device, e.Candidates[1].Device.Path)
	}
	fits := 0
	var lines []string
	for _, c := range e.Candidates {
		why := c.Why
		if why == "" {
			fits++
			why = "fits"
		}
		lines = append(lines, c.Device.String()+": "+why)
	}
	rule := "no rule was given, and"
	if !e.Rule.Empty() {
		rule = fmt.Sprintf("with the rule %q", e.Rule)
		if e.For != "" {
			rule += " for " + e.For
		}
	}
	list := strings.Join(lines, "; ")
	if list == "" {
		list = "the machine has no disk"
	}
	if e.Mirror != nil {
		return fmt.Sprintf("with the rules %q and, for the mirror, %q, not exactly one pair of disks fits (%s)", e.Rule,
			*e.Mirror, list)
	}
	return fmt.Sprintf("%s %d disks fit, not one (%s)", rule, fits, list)
}

// Choose returns the only disk that the rule fits and that may be written. The disks that a protected rule fits are
// out of reach. The order of devices does not matter.
func Choose(devices []Device, rule Rule, protected []Rule) (Device, error) {
	var found []Device
	var all []Candidate
	for _, d := range devices {
		why := against(devices, d, rule, protected)
		if why == "" {
			found = append(found, d)
		}
		all = append(all, Candidate{Device: d, Why: why})
	}
	if len(found) != 1 {
		return Device{}, &NoUniqueMatch{Rule: rule, Candidates: all}
	}
	return found[0], nil
}

// Pair is the two disks of a mirror.
type Pair struct{ First, Second Device }

// ChoosePair returns the only pair of disks that may be written of which one fits the rule and the other that of the
// mirror. Where each fits both, the order is that of their names.
func ChoosePair(devices []Device, rule, mirror Rule, protected []Rule) (Pair, error) {
	var found []Pair
	all := make([]Candidate, len(devices))
	for i, d := range devices {
		all[i] = Candidate{Device: d, Why: against(devices, d, rule, protected)}
		if all[i].Why != "" && mirror.Match(d) {
			all[i].Why = against(devices, d, mirror, protected)
		}
	}
	fits := func(d Device, r Rule) bool { return against(devices, d, r, protected) == "" }
	for i, a := range devices {
		for _, b := range devices[i+1:] {
			switch {
			case a.mayBe(b):
			case fits(a, rule) && fits(b, mirror):
				found = append(found, Pair{a, b})
			case fits(b, rule) && fits(a, mirror):
				found = append(found, Pair{b, a})
			}
		}
	}
	if len(found) != 1 {
		return Pair{}, &NoUniqueMatch{Rule: rule, Mirror: &mirror, Candidates: all}
	}
	return found[0], nil
}

// against returns the first reason for passing a disk over, or "".
func against(devices []Device, d Device, rule Rule, protected []Rule) string {
	for _, p := range protected {
		if !p.Empty() && p.Match(d) {
			return "it is protected by " + p.String()
		}
	}
	if why := d.Unfit(); why != "" {
		return why
	}
	for _, o := range devices {
		if o.Path != d.Path && d.mayBe(o) && forbidden(o, protected) {
			return "it may be another path to " + o.Path + ", which is protected or in use"
		}
	}
	if !rule.Match(d) {
		return "the rule does not fit"
	}
	return ""
}

// forbidden reports whether a disk must not be written because of what it holds.
func forbidden(d Device, protected []Rule) bool {
	return len(d.InUse) > 0 || slices.ContainsFunc(protected, func(p Rule) bool { return !p.Empty() && p.Match(d) })
}

// mayBe reports whether two devices may be paths to one disk. With the same WWN and serial number they are, and are one
// Device then. Without a WWN that is unknown. Namespaces of one drive have WWNs that differ.
func (d Device) mayBe(o Device) bool {
	return d.Serial != "" && d.Serial == o.Serial && d.Size == o.Size && d.Sector == o.Sector && d.Model == o.Model &&
		(d.WWN == "" || o.WWN == "" || d.WWN == o.WWN)
}

// Unprotected returns every disk that may be written. None is a *NoUniqueMatch.
func Unprotected(devices []Device, protected []Rule) ([]Device, error) {
	var found []Device
	var all []Candidate
	for _, d := range devices {
		why := against(devices, d, Rule{}, protected)
		if why == "" {
			found = append(found, d)
		}
		all = append(all, Candidate{Device: d, Why: why})
	}
	if len(found) == 0 {
		return nil, &NoUniqueMatch{Candidates: all}
	}
	return found, nil
}
