package rules_test

import (
	"go/ast"
	"go/types"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
)

// ruleTables are the variables that list the rules, in the order of the document.
var ruleTables = []string{"activeRules", "restRules", "endedRules"}

// TestRulesReadWhatTheyDeclare compares what each rule declares with what its functions read, and all that they call.
func TestRulesReadWhatTheyDeclare(t *testing.T) {
	p := loadProgram(t)
	n := 0
	for _, table := range ruleTables {
		for _, e := range p.tables[table].Elts {
			elts := e.(*ast.CompositeLit).Elts
			declared, err := strconv.ParseUint(p.info.Types[elts[1]].Value.ExactString(), 10, 8)
			if err != nil {
				t.Fatal(err)
			}
			if reads := p.of(elts[2], elts[3]); reads != explain.Input(declared) {
				t.Errorf("%s: a rule of %s reads %s and declares %s", p.fset.Position(e.Pos()), table, reads,
					explain.Input(declared))
			}
			n++
		}
	}
	if n != len(rules.RuleNames()) {
		t.Errorf("%d of %d rules were looked at", n, len(rules.RuleNames()))
	}
	for name := range p.unknown {
		t.Errorf("%s has no source in classes", name)
	}
}

// TestPastIsNotReadFromThePresent: the present connections are no evidence of what was sent, taken or answered.
func TestPastIsNotReadFromThePresent(t *testing.T) {
	p := loadProgram(t)
	n := 0
	for o, body := range p.bodies {
		if o.Pkg().Path() != rulesPath || body[0] == nil {
			continue
		}
		for _, s := range p.sentences(body[0]) {
			n++
			if s.from&explain.Present != 0 {
				t.Errorf("%s: %q depends on what holds now", s.at, s.text)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d texts about the past were found", n)
	}
}

// TestEndingsAreReadFromThePast: the functions that explain ended work read nothing of the present, themselves or
// through what they call.
func TestEndingsAreReadFromThePast(t *testing.T) {
	p := loadProgram(t)
	want := []string{"failure", "whyUnknown", "CommandFacts", "lastEvidence", "bootFailure", "exhaustedBy", "sinceThen",
		"Untaken", "sayCanceled", "stagesSoFar"}
	for o, input := range p.reads {
		fn, ok := o.(*types.Func)
		if !ok || !slices.Contains(want, fn.Name()) {
			continue
		}
		want = slices.DeleteFunc(want, func(name string) bool { return name == fn.Name() })
		if input&explain.Present != 0 {
			t.Errorf("%s reads %s", fn.Name(), input)
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no %s", strings.Join(want, ", "))
	}
}

// TestRulesWithoutPastTellNone looks through the texts of all scenes.
func TestRulesWithoutPastTellNone(t *testing.T) {
	for _, c := range faults() {
		l := newLab(t)
		c.inject(l)
		e := l.explain()
		if rules.RuleReads(e.Rule)&explain.Past != 0 {
			continue
		}
		for _, text := range append([]string{e.Summary, e.Cause.Text, e.WaitsFor}, e.Cause.Facts...) {
			if ofThePast.MatchString(text) {
				t.Errorf("%s: rule %s reads no stored events, and tells %q", c.name, e.Rule, text)
			}
		}
	}
}

// TestEndedWorkIsExplainedTheSame: another present does not change the cause of ended work.
func TestEndedWorkIsExplainedTheSame(t *testing.T) {
	n := 0
	for _, c := range faults() {
		for name, change := range changesOfThePresent {
			l := newLab(t)
			c.inject(l)
			l.f.Named = l.f.Op != nil
			before := l.explain()
			if l.f.Op == nil || before.Rule != "failed" && before.Rule != "fenced" && before.Rule != "canceled" {
				continue
			}
			n++
			change(l)
			after := l.explain()
			if after.Cause.Text != before.Cause.Text || after.Cause.Reason != before.Cause.Reason {
				t.Errorf("%s, %s: the cause becomes %s, %q; it was %s, %q", c.name, name, after.Cause.Reason,
					after.Cause.Text, before.Cause.Reason, before.Cause.Text)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d endings were compared", n)
	}
}

// changesOfThePresent turn what holds now, and leave the stored events.
var changesOfThePresent = map[string]func(*lab){
	"sessions turned": func(l *lab) {
		for i := range l.f.Agents {
			l.f.Agents[i].Live = !l.f.Agents[i].Live
		}
	},
	"no capabilities": func(l *lab) {
		for i := range l.f.Agents {
			l.f.Agents[i].Capabilities = nil
		}
	},
	"locks turned": func(l *lab) {
		for i := range l.f.Agents {
			l.f.Agents[i].Locked = !l.f.Agents[i].Locked
		}
	},
	"segments turned": func(l *lab) {
		for i := range l.f.Site.Segments {
			g := &l.f.Site.Segments[i]
			if g.State == "up" {
				g.State, g.ForeignDHCP = "down", "10.9.9.9"
			} else {
				g.State, g.ForeignDHCP = "up", ""
			}
		}
	},
}
