package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

const (
	// RuleWhy: an explanation is true.
	RuleWhy = "why-is-true"
	// RuleJudged: each rule, reason and fact of an explanation has a judgement.
	RuleJudged = "why-is-judged"
)

// Judge returns every violation in a record.
func Judge(r Record) []check.Violation {
	j := newJudge(r)
	// Log lines and the reconcile cursor are not read here, and the search for an order of so many calls has no end.
	j.found = check.JudgeBut(r.History, check.RuleLogs, check.RuleCursor, check.RuleAnswers)
	for _, e := range r.Explanations {
		j.explanation(e)
	}
	j.attention()
	return j.found
}

type judge struct {
	Record
	operations map[string]*baremetalv1.Operation
	commands   map[string]*baremetalv1.Command
	// byOperation are the commands of an operation, oldest first.
	byOperation map[string][]*baremetalv1.Command
	// effects are the records of each command.
	effects map[string][]sim.EffectRecord
	world   map[string]World
	found   []check.Violation
	// told are claims that were found wrong already: the same one is read again and again while it stands.
	told map[string]bool
}

func newJudge(r Record) *judge {
	j := &judge{Record: r, operations: map[string]*baremetalv1.Operation{}, commands: map[string]*baremetalv1.Command{},
		byOperation: map[string][]*baremetalv1.Command{}, effects: map[string][]sim.EffectRecord{}, world: map[string]World{},
		told: map[string]bool{}}
	for _, o := range r.Operations {
		j.operations[o.GetOperationId()] = o
	}
	for _, c := range r.Commands {
		j.commands[c.GetCommandId()] = c
		j.byOperation[c.GetOperationId()] = append(j.byOperation[c.GetOperationId()], c)
	}
	for _, all := range j.byOperation {
		slices.SortStableFunc(all, func(a, b *baremetalv1.Command) int {
			return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime())
		})
	}
	for _, e := range r.Effects {
		j.effects[e.CommandID] = append(j.effects[e.CommandID], e)
	}
	for _, w := range r.World {
		j.world[w.Machine] = w
	}
	return j
}

// calm are the rules by which nothing is wrong.
var calm = []string{"", "idle", "new", "maintenance", "succeeded"}

// attention: every machine that needs a person in the end was explained, by a rule of something that is wrong.
func (j *judge) attention() {
	explained := map[string]*baremetalv1.ExplainMachineResponse{}
	for _, e := range j.Explanations {
		if !e.Live && e.Operation == "" && e.Machine != nil {
			explained[e.Machine.GetMachineId()] = e.Answer
		}
	}
	for _, m := range j.Machines {
		if m.GetStatus().GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION {
			continue
		}
		if a := explained[m.GetMachineId()]; slices.Contains(calm, a.GetRule()) || a.GetSummary() == "" {
			j.found = append(j.found, check.Violation{Rule: RuleWhy, Subject: m.GetMachineId(),
				What: fmt.Sprintf("it needs a person (%s), and its explanation names nothing that is wrong: %v",
					m.GetStatus().GetAttentionReason(), a)})
		}
	}
}

// claim is one explanation under judgement.
type claim struct {
	judge *judge
	e     Explanation
	a     *baremetalv1.ExplainMachineResponse
	op    *baremetalv1.Operation
	// command is the last one of the operation; nil for none.
	command *baremetalv1.Command
}

func (j *judge) explanation(e Explanation) {
	if e.Shared != nil {
		j.shared(e)
		return
	}
	c := &claim{judge: j, e: e, a: e.Answer, op: j.operations[e.Answer.GetOperationId()]}
	if c.op != nil {
		if all := j.byOperation[c.op.GetOperationId()]; len(all) > 0 {
			c.command = all[len(all)-1]
			if n := c.named(); e.Live && n != nil {
				c.command = n // later ones had not been made
			}
		}
	} else if e.Answer.GetOperationId() != "" {
		c.lie("it names operation %s, which does not exist", e.Answer.GetOperationId())
	}
	judgement, known := judgements[c.a.GetRule()]
	if !known {
		c.unjudged("rule %q", c.a.GetRule())
	} else {
		judgement(c)
	}
	c.reason()
	c.nothingStarted()
	c.times()
	for _, fact := range c.a.GetFacts() {
		c.fact(fact)
	}
}

// shared: a site is silent only while its agent, or the connection to it, is broken.
func (j *judge) shared(e Explanation) {
	if !e.Live || !j.silenced(siteProgram, e.At) {
		j.found = append(j.found, check.Violation{Rule: RuleWhy, Subject: e.Shared.GetSite(),
			What: fmt.Sprintf("at %v: %q, and no fault has struck its agent", e.At.Round(time.Second), e.Shared.GetText())})
	}
}

func (c *claim) add(rule, format string, args ...any) {
	key := fmt.Sprint(rule, c.a.GetMachineId(), c.a.GetRule(), c.a.GetOperationId(), format)
	if c.judge.told[key] {
		return
	}
	c.judge.told[key] = true
	when := "in the end"
	if c.e.Live {
		when = "at " + c.e.At.Round(time.Second).String()
	}
	c.judge.found = append(c.judge.found, check.Violation{Rule: rule,
		Subject: c.a.GetMachineId(), What: fmt.Sprintf("%s, rule %s, operation %q: %s; it reads %q, facts %q", when,
			c.a.GetRule(), c.a.GetOperationId(), fmt.Sprintf(format, args...), c.a.GetSummary(), c.a.GetFacts())})
}

// lie records a claim that was not true.
func (c *claim) lie(format string, args ...any) { c.add(RuleWhy, format, args...) }

// unjudged records a claim that has no judgement.
func (c *claim) unjudged(format string, args ...any) {
	c.add(RuleJudged, "there is no judgement for "+format, args...)
}

// times: an explanation names only moments of the run, whatever clocks were stepped.
func (c *claim) times() {
	const slack = 3 * time.Second
	from, to := c.judge.Header.Begun.Add(-slack), c.judge.Header.Begun.Add(c.e.At+slack)
	check := func(what string, at stamped) {
		if t := at.AsTime(); t.Unix() > 0 && (t.Before(from) || t.After(to)) {
			c.lie("%s is %v, outside the run", what, t.Sub(c.judge.Header.Begun))
		}
	}
	check("since", c.a.GetSince())
	check("the time of the last evidence", c.a.GetLastEvidenceAt())
	check("the time at which the step began", c.a.GetStepStartedAt())
}

type stamped interface{ AsTime() time.Time }

// nothingStarted: where an explanation of an operation has these words, none of the commands that it means has reached
// the world.
func (c *claim) nothingStarted() {
	if c.op == nil || c.command == nil || c.e.Live && c.command.GetGrantedAt() != nil {
		return // a command may have been granted after the question
	}
	text := strings.Join(append([]string{c.a.GetSummary(), c.a.GetCause()}, c.a.GetFacts()...), "\n")
	for _, words := range []string{"nothing was started", "nothing was done", "nothing has been started",
		"nothing was written"} {
		if strings.Contains(text, words) && c.judge.touched(c.command) {
			c.lie("%q, and command %s reached the world: %v", words, c.command.GetCommandId(),
				c.judge.effects[c.command.GetCommandId()][0])
		}
	}
}

// touched reports whether a command reached the world.
func (j *judge) touched(c *baremetalv1.Command) bool { return len(j.effects[c.GetCommandId()]) > 0 }

// happened reports whether a command had an effect.
func (j *judge) happened(c *baremetalv1.Command) bool {
	return slices.ContainsFunc(
		j.effects[c.GetCommandId()],
		func(e sim.EffectRecord) bool { return e.Stage == sim.StageEffect },
	)
}

// done reports whether the world shows the work of a command. Of kinds that it does not record nothing is known.
func (j *judge) done(c *baremetalv1.Command) bool {
	return !slices.Contains([]string{"reboot", "repave"}, c.GetKind()) || j.happened(c)
}
