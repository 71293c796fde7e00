package judge

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// fact is a form that a fact may have, and what must have been true for it. The matches are those of the form.
type fact struct {
	form  *regexp.Regexp
	holds func(c *claim, m []string) bool
}

// commandForm names a command, its kind and attempt, its state and its executor.
var commandForm = regexp.MustCompile(`^command (\S+) \((\S+), attempt (\d+)\) is (\S+) with (\S*)$`)

// facts are the forms of the facts that explanations list.
var facts = []fact{
	{commandForm, func(c *claim, m []string) bool {
		x := c.judge.commands[m[1]]
		return x != nil && x.GetKind() == m[2] && strconv.Itoa(int(x.GetAttempt())) == m[3] &&
			(c.e.Live || x.GetState() == m[4]) && x.GetExecutorAgentId() == m[5]
	}},
	{regexp.MustCompile(`^the start was granted at `), func(c *claim, _ []string) bool {
		return c.named() == nil || c.named().GetGrantedAt() != nil
	}},
	{regexp.MustCompile(`^it was sent at .*, and its start has not been granted: nothing was started$`), ungranted},
	{regexp.MustCompile(`^it has not been sent: nothing was started$`), ungranted},
	{regexp.MustCompile(`(?s)^the executor says: (.*)$`), func(c *claim, m []string) bool {
		return c.e.Live || c.named() == nil || c.named().GetMessage() == m[1]
	}},
	{
		regexp.MustCompile(`^command (\S+) to agent (\S+) was acknowledged at .*, and its start was not granted$`),
		untaken,
	},
	{regexp.MustCompile(`^command (\S+) to agent (\S+) was sent at .*, and no acknowledgement of it is stored$`), untaken},
	{regexp.MustCompile(`^command (\S+) to agent (\S+) was never sent$`), untaken},
	{regexp.MustCompile(`^the result of command (\S+) came after its time was up`), func(c *claim, m []string) bool {
		x := c.judge.commands[m[1]]
		return x != nil && (x.GetSettledBy() != "" || c.e.Live)
	}},
	{regexp.MustCompile(`^its result has come since: it has succeeded$`), func(c *claim, _ []string) bool {
		x := c.named()
		return c.e.Live || x != nil && x.GetOutcome() == "SUCCEEDED" && x.GetSettledBy() != "" && c.judge.done(x)
	}},
	{regexp.MustCompile(`^it was tried (\d+) times$`), func(c *claim, m []string) bool {
		n := 0
		for _, x := range c.judge.byOperation[c.a.GetOperationId()] {
			// A command that was replaced before its grant is part of the try that the next one makes.
			if x.GetStep() == c.command.GetStep() && x.GetState() != "CANCELED" {
				n++
			}
		}
		return c.e.Live || strconv.Itoa(n) == m[1]
	}},
	{regexp.MustCompile(`^no agent has ever been enrolled on the machine itself`), func(c *claim, _ []string) bool {
		return !slices.ContainsFunc(
			c.judge.reaching(c.a.GetMachineId()),
			func(name string) bool { return name != siteProgram },
		)
	}},
	{regexp.MustCompile(`^at this moment: `), func(c *claim, _ []string) bool { return c.struckNow() }},
	{regexp.MustCompile(`^every agent that could act on this machine is silent`), func(c *claim, _ []string) bool {
		return c.struckNow()
	}},
	// It names what may be, of an agent whose session is open.
	{
		regexp.MustCompile(`^an agent that is connected and acknowledges nothing may hang, or its disk may be full$`),
		always,
	},
	{regexp.MustCompile(`^nothing is known to be wrong with the machine: it was observed last at `), always},
	{regexp.MustCompile(`^the cause lies with agent (\S+)$`), func(c *claim, m []string) bool {
		return c.a.GetReason() == "CAPABILITY_MISSING" || c.atFault(c.judge.Agents[m[1]])
	}},
	{
		regexp.MustCompile(`(?s)^each failed attempt is one for the counter; the last one ended with `),
		func(c *claim, _ []string) bool {
			return slices.ContainsFunc(c.judge.byOperation[c.a.GetOperationId()], func(x *baremetalv1.Command) bool {
				return c.e.Live || x.GetState() == "EXPIRED" || x.GetState() == "DONE" && x.GetOutcome() != "SUCCEEDED"
			})
		},
	},
	{regexp.MustCompile(`^the cause lies with a limit$`), func(c *claim, _ []string) bool {
		return c.a.GetReason() == "STEP_TIMEOUT"
	}},
	{regexp.MustCompile(`^needs intervention for (\S+), until `), always}, // the product's own record
	{regexp.MustCompile(`^it may have acted, and may still act`), always}, // excludes nothing
	{regexp.MustCompile(`^it has ended, and may be asked for again`), func(c *claim, _ []string) bool {
		x := c.judge.commands[strings.TrimPrefix(c.a.GetWaitsFor(), settles)]
		return x != nil && x.GetOutcome() == "UNKNOWN" && x.GetFinishedAt() != nil
	}},
	{regexp.MustCompile(`^(\S+) was cancelled at step `), func(c *claim, _ []string) bool { return c.canceledLast() }},
}

// atFault reports whether a fault struck the program itself, and not its connection, while the operation was under way.
func (c *claim) atFault(name string) bool {
	if c.op == nil {
		return false
	}
	from, to := c.judge.during(c.op)
	return slices.ContainsFunc(c.judge.Faults, func(f check.Fault) bool {
		return f.Target == name && !strings.HasPrefix(f.Kind, "cut-") && f.Begin <= to && f.End+recovery >= from
	})
}

func always(*claim, []string) bool { return true }

// named is the command that the facts are about: the one that the first fact of that form names.
func (c *claim) named() *baremetalv1.Command {
	for _, f := range c.a.GetFacts() {
		if m := commandForm.FindStringSubmatch(f); m != nil {
			return c.judge.commands[m[1]]
		}
	}
	return nil
}

// ungranted: the command was not granted, and has not reached the world.
func ungranted(c *claim, _ []string) bool {
	x := c.named()
	return x == nil || c.e.Live || x.GetGrantedAt() == nil && !c.judge.touched(x)
}

// untaken: the command that the fact names was not granted to that agent, and has not reached the world.
func untaken(c *claim, m []string) bool {
	x := c.judge.commands[m[1]]
	return x != nil && x.GetExecutorAgentId() == m[2] && (c.e.Live || x.GetGrantedAt() == nil && !c.judge.touched(x))
}

// struckNow reports whether a fault silences an agent of the machine at the moment of the question.
func (c *claim) struckNow() bool {
	for _, name := range c.judge.reaching(c.a.GetMachineId()) {
		if c.silencedNow(name) {
			return true
		}
	}
	return c.e.Live && c.judge.struck(c.e.At, c.e.At, own...)
}

func (c *claim) canceledLast() bool {
	return c.e.Live || c.op != nil && c.op.GetPhase() == baremetalv1.Operation_CANCELED
}

// fact judges one fact.
func (c *claim) fact(text string) {
	if c.quoted(text) {
		return
	}
	for _, f := range facts {
		if m := f.form.FindStringSubmatch(text); m != nil {
			if !f.holds(c, m) {
				c.lie("the fact %q is not true", text)
			}
			return
		}
	}
	c.unjudged("fact %q", text)
}

// quoted reports whether a fact repeats a stored text of the operation or its command word for word. Its reason has a
// judgement.
func (c *claim) quoted(text string) bool {
	texts := []string{c.op.GetError().GetMessage(), c.command.GetMessage(), c.a.GetCause()}
	for _, x := range c.e.Machine.GetStatus().GetConditions() {
		texts = append(texts, x.GetMessage())
	}
	for _, t := range texts {
		if t != "" && strings.Contains(t, text) {
			return true
		}
	}
	return false
}
