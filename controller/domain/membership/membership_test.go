package membership_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/internal/filter"
)

func selection(t testing.TB, text string) []filter.Term {
	t.Helper()
	terms, err := membership.ParseSelection(text)
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

func fields(id string, labels map[string]string, spec map[string]string) membership.Fields {
	return membership.Fields{MachineID: id, Labels: labels, Spec: spec}
}

type pairs = map[string]string

func TestDecide(t *testing.T) {
	t.Parallel()
	rackBudget := membership.Use{Kind: membership.Budget, Name: "racks", Key: "rack"}
	rackRole := membership.Use{Kind: membership.Role, Name: "r", Terms: selection(t, "rack=1")}
	operator := membership.Roles{{Level: membership.Operate}}
	ownAdmin := membership.Roles{{Level: membership.Operate},
		{Level: membership.Admin, Terms: selection(t, "labels.team=mine")}}
	at := func(labels pairs, site string) *membership.Fields {
		f := fields("m-1", labels, pairs{"site": site})
		return &f
	}
	in := func(field, label string) *membership.Fields {
		f := fields("m-1", pairs{"rack": label}, pairs{"site": "x", "rack": field})
		return &f
	}
	for name, c := range map[string]struct {
		caller        membership.Roles
		before, after *membership.Fields
		uses          []membership.Use
		want          string
	}{
		"a label that nothing uses": {operator, at(pairs{"a": "1"}, "x"), at(pairs{"a": "2"}, "x"),
			[]membership.Use{rackBudget}, ""},
		"another budget": {operator, at(pairs{"rack": "1"}, "x"), at(pairs{"rack": "2"}, "x"),
			[]membership.Use{rackBudget}, "labels.rack budget racks"},
		"out of the budget": {operator, at(pairs{"rack": "1"}, "x"), at(nil, "x"),
			[]membership.Use{rackBudget}, "labels.rack budget racks"},
		"a budget of another value": {operator, at(pairs{"rack": "1"}, "x"), at(pairs{"rack": "2"}, "x"),
			[]membership.Use{{Kind: membership.Budget, Name: "one", Key: "rack", Value: "3"}}, ""},
		"another budget by the field": {operator, in("1", ""), in("2", ""), []membership.Use{rackBudget},
			"rack budget racks"},
		"a second rack by a label": {operator, in("1", ""), in("1", "2"), []membership.Use{rackBudget},
			"labels.rack budget racks"},
		"a second rack by the field": {operator, in("", "1"), in("2", "1"), []membership.Use{rackBudget},
			"rack budget racks"},
		"the same rack by both": {operator, in("1", ""), in("1", "1"), []membership.Use{rackBudget}, ""},
		"the label that does not decide leaves a budget": {operator, in("2", "1"), in("2", ""),
			[]membership.Use{{Kind: membership.Budget, Name: "one", Key: "rack", Value: "1"}}, "labels.rack budget one"},
		"into a role by a label": {operator, in("", ""), in("", "1"), []membership.Use{rackRole},
			"labels.rack role r"},
		"into a role by the field":           {operator, in("2", ""), in("1", ""), []membership.Use{rackRole}, "rack role r"},
		"a label that a field stands before": {operator, in("2", ""), in("2", "1"), []membership.Use{rackRole}, ""},
		"registering in a rack with a budget": {operator, nil, in("1", ""), []membership.Use{rackBudget},
			"rack budget racks"},
		"an own role":       {ownAdmin, at(nil, "x"), at(pairs{"team": "mine"}, "x"), nil, "labels.team role "},
		"an own role, left": {ownAdmin, at(pairs{"team": "mine"}, "x"), at(nil, "x"), nil, "labels.team role "},
		"an admin within the selection": {ownAdmin, at(pairs{"team": "mine", "rack": "1"}, "x"),
			at(pairs{"team": "mine", "rack": "2"}, "x"), []membership.Use{rackBudget}, ""},
		"a level that is left": {operator, at(nil, "x"), at(nil, "y"),
			[]membership.Use{{Kind: membership.IdentityLevel, Name: "site x", Key: "site", Value: "x"}},
			"site identity level site x"},
		"a machine of others": {membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=y")}},
			at(nil, "x"), at(nil, "x"), nil, "outside"},
		"read alone":  {membership.Roles{{Level: membership.Read}}, at(nil, "x"), at(nil, "x"), nil, "outside"},
		"registering": {operator, nil, at(pairs{"a": "1"}, "x"), []membership.Use{rackBudget}, ""},
		"registering elsewhere": {membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=y")}}, nil,
			at(nil, "x"), nil, "outside"},
		"registering at the own site": {membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=x")}}, nil,
			at(nil, "x"), []membership.Use{{Kind: membership.Role, Name: "r", Terms: selection(t, "site=x")}}, ""},
		"registering a used label": {operator, nil, at(pairs{"rack": "1"}, "x"), []membership.Use{rackBudget},
			"labels.rack budget racks"},
		"registering for a percentage": {operator, nil, at(nil, "x"),
			[]membership.Use{{Kind: membership.Budget, Name: "tenth", Counted: true}}, " budget tenth"},
		"registering as an admin of the selection": {ownAdmin, nil, at(pairs{"team": "mine", "rack": "1"}, "x"),
			[]membership.Use{rackBudget}, ""},
	} {
		got := ""
		switch no := membership.Decide(c.caller, c.before, *c.after, c.uses); {
		case no != nil && no.Outside:
			got = "outside"
		case no != nil:
			got = no.Key + " " + string(no.Use.Kind) + " " + no.Use.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// world is a drawn fleet with everything that depends on its fields.
type world struct {
	rand   *rand.Rand
	uses   []membership.Use
	caller membership.Roles
	// fleet has the fields of each piece of hardware by its MAC address. first has those at the start or at its first
	// registration, and deleted those of removed records.
	fleet, first, deleted map[string]membership.Fields
}

func (w *world) among(words ...string) string { return words[w.rand.IntN(len(words))] }

func (w *world) draw() membership.Fields {
	f := fields(fmt.Sprint("m-", w.rand.IntN(6)), pairs{}, pairs{"site": w.among("x", "y"),
		"group": w.among("g", "h", ""), "rack": w.among("a", "b", "")})
	for _, key := range []string{"team", "rack", "free"} {
		if w.rand.IntN(2) == 0 {
			f.Labels[key] = w.among("a", "b", "")
		}
	}
	return f
}

func (w *world) selection(t testing.TB) []filter.Term {
	return selection(t, w.among(
		"",
		"site=x",
		"site!=x",
		"labels.team=a",
		"labels.team!=a",
		"labels.team=a*",
		"group in (g, h), site=y",
		"rack=a",
		"rack!=b",
		"rack=a,labels.rack=b",
		"machine_id=m-1",
		"labels.rack not in (a, b)",
	))
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), fleet: map[string]membership.Fields{},
		deleted: map[string]membership.Fields{}}
	w.uses = append(w.uses,
		membership.Use{Kind: membership.Budget, Name: "b-1", Key: w.among("rack", "rack", "site", "labels.team", ""),
			Counted: w.rand.IntN(3) == 0},
		membership.Use{Kind: membership.IdentityLevel, Name: "g", Key: "group", Value: w.among("g", "h")},
		membership.Use{Kind: membership.Role, Name: "other", Terms: w.selection(t)})
	for range 1 + w.rand.IntN(3) {
		g := membership.Grant{Level: membership.Level(1 + w.rand.IntN(3)), Terms: w.selection(t)}
		if g.Level == membership.Admin && len(g.Terms) == 0 {
			g.Level = membership.Operate // an admin of all machines may do anything
		}
		w.caller = append(w.caller, g)
		w.uses = append(w.uses, membership.Use{Kind: membership.Role, Name: "own", Terms: g.Terms})
	}
	for i := range 5 {
		w.fleet[fmt.Sprint("mac-", i)] = w.draw()
	}
	w.first = maps.Clone(w.fleet)
	return w
}

// as returns the caller, or a token that it has made: no more than its roles, in a further selection.
func (w *world) as(t testing.TB) membership.Roles {
	if w.rand.IntN(3) > 0 {
		return w.caller
	}
	level, narrow := membership.Level(1+w.rand.IntN(3)), w.selection(t)
	var out membership.Roles
	for _, g := range w.caller {
		out = append(out, membership.Grant{Level: min(level, g.Level), Terms: slices.Concat(g.Terms, narrow)})
	}
	return out
}

// step makes one write, as far as it is allowed.
func (w *world) step(t testing.TB) {
	c, mac, want := w.as(t), fmt.Sprint("mac-", w.rand.IntN(7)), w.draw()
	before, there := w.fleet[mac]
	if there && w.rand.IntN(4) == 0 {
		if c.LevelAt(before) >= membership.Operate {
			delete(w.fleet, mac)
			w.deleted[mac] = before
		}
		return
	}
	if there {
		want.MachineID = before.MachineID
		if membership.Decide(c, &before, want, w.uses) == nil {
			w.fleet[mac] = want
		}
		return
	}
	if membership.Decide(c, nil, want, w.uses) != nil {
		return
	}
	if gone, had := w.deleted[mac]; had && membership.Decide(c, &gone, want, w.uses) != nil {
		return
	}
	w.fleet[mac] = want
	if _, known := w.first[mac]; !known {
		w.first[mac] = want
	}
}

// where names where a machine stands for a use: in it or not, and at which value.
func where(u membership.Use, f membership.Fields) string {
	value, _ := f.Value(u.Key)
	if u.Key == "rack" { // a budget counts both names
		value = fmt.Sprint(slices.Compact(slices.Sorted(slices.Values([]string{cmp.Or(f.Labels["rack"], f.Spec["rack"]),
			cmp.Or(f.Spec["rack"], f.Labels["rack"])}))))
	}
	if u.Value != "" {
		value = fmt.Sprint(value == u.Value)
	}
	return fmt.Sprint(f.In(u.Terms), " ", value)
}

// An identity that is no admin of a machine writes in any sequence. Its rights on that machine, the budgets and the
// identity level stay, and so does the number of machines that a percentage is taken of.
func TestNoWritesChangeOwnRights(t *testing.T) {
	t.Parallel()
	moved, byAdmin, registered := 0, 0, 0
	for seed := range uint64(3000) {
		w := newWorld(t, seed)
		for range 40 {
			w.step(t)
		}
		for mac, now := range w.fleet {
			first := w.first[mac]
			if !now.Equal(first) {
				moved++
			}
			if w.caller.LevelAt(first) >= membership.Admin {
				byAdmin++
				continue
			}
			if was, is := w.caller.LevelAt(first), w.caller.LevelAt(now); was != is {
				t.Fatalf("seed %d: the rights on %s went from %d to %d", seed, mac, was, is)
			}
			for _, u := range w.uses {
				if where(u, first) != where(u, now) {
					t.Fatalf("seed %d: %s %s: %s went from %v to %v", seed, u.Kind, u.Name, mac, first, now)
				}
				newcomer := strings.Contains("mac-5 mac-6", mac)
				if newcomer {
					registered++
				}
				if newcomer && u.Counted && now.In(u.Terms) {
					t.Fatalf("seed %d: %s was registered, and budget %s counts it", seed, mac, u.Name)
				}
			}
		}
	}
	if moved < 1000 || byAdmin < 1000 || registered < 1000 {
		t.Errorf("%d machines changed, %d of an admin, %d registered: the worlds are too small", moved, byAdmin, registered)
	}
}
