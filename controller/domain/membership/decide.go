package membership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

// Kind is the kind of thing that depends on fields of machines.
type Kind string

// The kinds.
const (
	Role           Kind = "role"
	Token          Kind = "token"
	Budget         Kind = "budget"
	IdentityLevel  Kind = "identity level"
	ApprovalPolicy Kind = "approval policy"
)

// Use is one thing that depends on fields of machines.
type Use struct {
	Kind Kind
	// Name is unique among the uses of a kind: a binding, a token, a budget, a policy, a site or a group.
	Name string
	// Terms select the machines that it is about. None select all.
	Terms []filter.Term
	// Key divides the machines by the value of a field, as a budget for each rack does. Empty for none.
	Key string
	// Value narrows the use to the machines with one value of the key; empty for all values.
	Value string
	// Counted reports whether more machines allow more, as in a budget that is a percentage.
	Counted bool
}

// place returns where a use puts a machine. Two machines in one place are alike to it.
func (u Use) place(f Fields) string {
	if !f.In(u.Terms) {
		return outside
	}
	if u.Key == "" {
		return "in"
	}
	values := f.values(u.Key)
	switch {
	case u.Value == "":
		return fmt.Sprintf("in %q", values)
	case !slices.Contains(values, u.Value):
		return outside
	}
	return "in"
}

// outside is the place of the machines that a use is not about.
const outside = "out"

// keys are the fields that the use reads.
func (u Use) keys() []string {
	var out []string
	for _, t := range u.Terms {
		if isField(t.Key) {
			out = append(out, t.Key)
		}
	}
	if u.Key != "" {
		out = append(out, u.Key)
	}
	return out
}

// Level is what a role allows on a machine. A higher one includes the lower ones.
type Level uint8

// The levels.
const (
	None Level = iota
	Read
	Operate
	Admin
)

// Grant is a role on the machines of a selection. No terms stand for all machines.
type Grant struct {
	Level Level
	Terms []filter.Term
}

// Roles are the roles of a caller.
type Roles []Grant

// RolesOf returns roles as they count for the fields of machines.
func RolesOf(grants []access.Grant) (out Roles, err error) {
	for _, g := range grants {
		terms, err := ParseSelection(g.Selection)
		if err != nil {
			return nil, err
		}
		level := levelOf(g.Role.Scope())
		if !OfFields(terms) {
			level = min(level, Operate) // a line of the token file may name a state, which work changes
		}
		out = append(out, Grant{Level: level, Terms: terms})
	}
	return out, nil
}

func levelOf(s access.Scope) Level {
	switch {
	case s.Covers(access.ScopeAdmin):
		return Admin
	case s.Covers(access.ScopeOperate):
		return Operate
	case s.Covers(access.ScopeRead):
		return Read
	}
	return None
}

// LevelAt returns the highest level that the caller has on a machine.
func (r Roles) LevelAt(f Fields) Level {
	level := None
	for _, g := range r {
		if g.Level > level && f.In(g.Terms) {
			level = g.Level
		}
	}
	return level
}

// Everywhere returns the highest level that the caller has on all machines.
func (r Roles) Everywhere() Level {
	level := None
	for _, g := range r {
		if len(g.Terms) == 0 {
			level = max(level, g.Level)
		}
	}
	return level
}

// uses are the caller's own roles, which the caller may have had for longer than the database knows.
func (r Roles) uses() (out []Use) {
	for _, g := range r {
		out = append(out, Use{Kind: Role, Terms: g.Terms})
	}
	return out
}

// Refusal is the reason why a caller may not write fields.
type Refusal struct {
	// Outside: the caller may not operate the machine, as it is or as it would be. The rest is empty then.
	Outside bool
	// Key is the field that the write changes, as filters name it. It is empty where the number of machines is what
	// changes.
	Key string
	// Use is what depends on the field.
	Use Use
}

// Decide returns why the caller may not change a machine's fields from before to after; nil where the caller may.
// Without before the machine is new. uses are all things that depend on fields of machines.
func Decide(c Roles, before *Fields, after Fields, uses []Use) *Refusal {
	if before == nil {
		return register(c, after, uses)
	}
	if c.LevelAt(*before) < Operate {
		return &Refusal{Outside: true}
	}
	if c.LevelAt(*before) >= Admin && c.LevelAt(after) >= Admin {
		return nil
	}
	for _, u := range slices.Concat(c.uses(), uses) {
		if u.place(*before) != u.place(after) {
			return &Refusal{Key: changedKey(u, *before, after), Use: u}
		}
	}
	return nil
}

// register decides about a new machine. Its site and the other fields of its spec need a role on the machines with
// such fields. A label in use and a larger percentage need an admin.
func register(c Roles, after Fields, uses []Use) *Refusal {
	switch level := c.LevelAt(after); {
	case level < Operate:
		return &Refusal{Outside: true}
	case level >= Admin:
		return nil
	}
	for _, u := range uses {
		if u.place(after) == outside {
			continue
		}
		if u.Counted {
			return &Refusal{Use: u}
		}
		for _, key := range u.keys() {
			_, set := after.Value(key)
			// A budget of racks is one of a label, whichever field names the rack.
			if set && (strings.HasPrefix(key, labelPrefix) || key == u.Key && key == label.Rack) {
				return &Refusal{Key: written(key, Fields{}, after), Use: u}
			}
		}
	}
	return nil
}

// changedKey returns the first field that the use reads and the write changes.
func changedKey(u Use, before, after Fields) string {
	for _, key := range u.keys() {
		key = written(key, before, after)
		was, had := before.Value(key)
		is, has := after.Value(key)
		if was != is || had != has {
			return key
		}
	}
	return ""
}

// written returns the field that a write has changed of those that a key reads: the label, where the field of the spec
// that names the rack is the same.
func written(key string, before, after Fields) string {
	if key == label.Rack && before.Spec[label.Rack] == after.Spec[label.Rack] {
		return labelPrefix + label.Rack
	}
	return key
}
