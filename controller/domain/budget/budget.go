// Package budget decides which destructive operations may begin. So a mistake, a broken image or a stolen token loses a
// few machines and not the fleet.
//
// A rule limits one failure domain: the fleet, each site, or each value of a label such as a rack. A destructive
// operation takes a slot before it starts and holds it until its machine is healthy again or an administrator has
// looked at it. Rates count slots by when they were taken, whether they are held or not.
//
// It is pure: rules, slots and requests in, verdicts out.
package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/internal/label"
)

// The failure domains. A label's domain is LabelPrefix and the label's key. That of the label rack divides machines by
// their rack, whether the label or the field of the spec names it.
const (
	Fleet       = "fleet"
	Site        = "site"
	LabelPrefix = "label:"
)

// Rule is one limit. Every number is a limit of its own, and 0 is none.
type Rule struct {
	Name string
	// Harm is the harm whose slots the rule counts.
	Harm kind.Harm
	// Domain is what the rule counts by: Fleet, Site, or LabelPrefix and a key.
	Domain string
	// Value narrows the rule to one site or one value of the label; empty holds for each by itself. Machines without the
	// label are a domain of their own.
	Value string
	// AtOnce is how many slots may be held at a time.
	AtOnce int
	// Percent is AtOnce as a part of the domain's machines, rounded down, but one at least.
	Percent int
	// PerHour and PerDay are how many slots may be taken in any 60 minutes and any 24 hours.
	PerHour, PerDay int
}

// FilterKey returns the key by which filters of machines name what a domain divides them by; empty for the fleet.
func FilterKey(domain string) string {
	switch key, ok := strings.CutPrefix(domain, LabelPrefix); {
	case ok && key == label.Rack:
		return label.Rack
	case ok:
		return "labels." + key
	case domain == Fleet:
		return ""
	}
	return domain
}

// Place is where a machine stands.
type Place struct {
	Site   string
	Labels map[string]string
	// Rack is the field of the machine's spec. The label rack may name another one.
	Rack string
}

// In returns the machine's value in a domain. It is empty in the fleet, and where the machine has none.
func (p Place) In(domain string) string {
	switch key, ok := strings.CutPrefix(domain, LabelPrefix); {
	case ok && key == label.Rack:
		return label.RackOf(p.Rack, p.Labels)
	case ok:
		return p.Labels[key]
	case domain == Site:
		return p.Site
	}
	return ""
}

// names returns all values of the machine in a domain. A machine has two racks where field and label differ.
func (p Place) names(domain string) []string {
	if domain == LabelPrefix+label.Rack {
		return label.RacksOf(p.Rack, p.Labels)
	}
	return []string{p.In(domain)}
}

// Covers reports whether the rule is about machines at p.
func (r Rule) Covers(p Place) bool { return len(r.keys(p, nil)) > 0 }

// keys returns the domain's values at several places, each once; none where the rule is about none of them.
func (r Rule) keys(p Place, also []Place) (values []string) {
	for _, at := range append([]Place{p}, also...) {
		for _, value := range at.names(r.Domain) {
			if (r.Value == "" || r.Value == value) && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
	}
	return values
}

// Slot is one taken in the last day, or one that is still held. Its place is that of when it was taken.
type Slot struct {
	Place
	Harm kind.Harm
	// Also are further places in which the slot counts: where the machine stood at the request, and where it stands now.
	Also  []Place
	Taken time.Time
	Held  bool
}

// Group is how many machines stand at one place.
type Group struct {
	Place
	Machines int
}

// Request is an operation that waits for a slot. Its place is where the machine stands now.
type Request struct {
	OperationID string
	// Harms are the harms of which the operation needs a slot.
	Harms []kind.Harm
	Place
	// Also is where the machine stood at the request, if that was elsewhere: both places need room.
	Also []Place
}

// Kind is the number of a rule that is reached.
type Kind string

// The kinds of limits.
const (
	AtOnce  Kind = "at once"
	Percent Kind = "percent"
	PerHour Kind = "per hour"
	PerDay  Kind = "per day"
)

// Verdict is the answer to one request.
type Verdict struct {
	OperationID string
	// Admitted: it has a slot now. The rest is empty then.
	Admitted bool
	// Rule is the first that stands in the way, and Value the domain's value.
	Rule  Rule
	Value string
	Kind  Kind
	// Used is how much of Limit is taken.
	Used, Limit int
	// Raised is Rule with room for one more in its domain, and no other change. It is nil where no percentage has that.
	Raised *Rule
	// Until is when a rate has room again if no other operation takes it; zero for the others, which end with work that is
	// done.
	Until time.Time
}

// String returns the verdict as a text for people.
func (v Verdict) String() string {
	if v.Admitted {
		return "admitted"
	}
	where := v.Rule.Domain
	if v.Rule.Domain != Fleet {
		where = strings.TrimPrefix(v.Rule.Domain, LabelPrefix) + " " + quoted(v.Value)
	}
	s := fmt.Sprintf("budget %s: %d of %d slots of %s are taken", v.Rule.Name, v.Used, v.Limit, where)
	switch v.Kind {
	case Percent:
		return fmt.Sprintf("%s (%d %% of its machines at once)", s, v.Rule.Percent)
	case PerHour, PerDay:
		return fmt.Sprintf("%s (%s)", s, v.Kind)
	case AtOnce:
	}
	return s
}

func quoted(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
