package check

import (
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// copies: an identity of two processes belongs to one process in the end. One of two machines belongs to none before an
// operator has looked at it.
func (j *judge) copies() {
	for _, name := range j.h.Header.Lingering {
		j.add(RuleCopies, name, "two processes with its identity live on, and neither gives way")
	}
	for _, f := range j.h.Faults {
		if f.Kind != "elsewhere-agent" || !f.Took {
			continue
		}
		for _, m := range j.h.Machines {
			if m.GetMachineId() == f.Machine && m.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_QUARANTINED {
				j.add(RuleCopies, f.Machine, "another machine has used its identity, and it is %s", m.GetStatus().GetNodeState())
			}
		}
	}
}

// timeSlack is how far the controllers' clock may be from that of the world, and how long a history may be on its way.
const timeSlack = 3 * time.Second

// times: whatever the controllers have stored of a run, they have stored while it was going on.
func (j *judge) times() {
	if j.h.Header.Begun.IsZero() {
		return // a history from before it was noted
	}
	from, to := j.h.Header.Begun.Add(-timeSlack), j.h.Header.At.Add(timeSlack)
	check := func(subject, what string, at stamped) {
		if t := at.AsTime(); t.Unix() != 0 && (t.Before(from) || t.After(to)) {
			j.add(RuleTimes, subject, "%s at %s, outside its run (%s to %s)", what, t.Format(time.RFC3339Nano),
				from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
		}
	}
	for _, o := range j.h.Operations {
		check(o.GetOperationId(), "created", o.GetCreatedAt())
		check(o.GetOperationId(), "started", o.GetStartedAt())
		check(o.GetOperationId(), "finished", o.GetFinishedAt())
	}
	for _, c := range j.h.Commands {
		check(c.GetCommandId(), "created", c.GetCreatedAt())
		check(c.GetCommandId(), "sent", c.GetSentAt())
		check(c.GetCommandId(), "granted", c.GetGrantedAt())
		check(c.GetCommandId(), "finished", c.GetFinishedAt())
	}
}

const (
	// grantWindow is how long an agent may act on a grant, by the boot-time clock of its machine.
	grantWindow = 30 * time.Second
	// windowSlack is for what the clocks of this rule may differ by.
	windowSlack = 500 * time.Millisecond
	// ordered is how much later than the end of a suspension a call for an effect was certainly decided on after it.
	ordered = 50 * time.Millisecond
)

// windows: nothing is begun on a grant that was over, by the clock of the machine. Of a command that was granted
// several times the first is all that is known, so it is left out.
func (j *judge) windows() {
	granted := map[string]int{}
	for _, g := range j.h.Grants {
		granted[g.Command]++
	}
	begun := map[string]time.Time{}
	for _, e := range j.h.Effects {
		if t, known := begun[e.CommandID]; !known || e.At.Before(t) {
			begun[e.CommandID] = e.At
		}
	}
	for _, c := range j.h.Commands {
		at, acted := begun[c.GetCommandId()]
		if !acted || granted[c.GetCommandId()] != 1 || c.GetGrantedAt() == nil {
			continue
		}
		age := at.Sub(c.GetGrantedAt().AsTime())
		for _, f := range j.h.Faults {
			slept := j.h.Header.Begun.Add(f.End)
			if f.Machine == c.GetMachineId() && slept.After(c.GetGrantedAt().AsTime()) && slept.Add(ordered).Before(at) {
				age += f.Asleep
			}
		}
		if age > grantWindow+windowSlack {
			j.add(RuleWindow, c.GetMachineId(), "command %s was begun %v after its only grant, by its machine's clock",
				c.GetCommandId(), age)
		}
	}
}

// expiry: no agent takes a command for expired before it is, whatever its own clock shows. The clock of a machine that
// slept is right.
func (j *judge) expiry() {
	slept := map[string]bool{}
	for _, f := range j.h.Faults {
		if f.Asleep > 0 {
			slept[f.Machine] = true
		}
	}
	for _, c := range j.h.Commands {
		_, text, _ := strings.Cut(c.GetMessage(), "expired at ")
		expiry, err := time.Parse(time.RFC3339, text)
		// A grant moves the deadline in the database; the agent reads the expiry that came with the command. A late result
		// carries the time at which its operation ended.
		if err == nil && c.GetFinishedAt().AsTime().Before(expiry) && c.GetSettledBy() == "" &&
			c.GetOutcome() == "REFUSED" && !slept[c.GetMachineId()] {
			j.add(RuleTimes, c.GetMachineId(), "command %s was refused as expired %v before its expiry",
				c.GetCommandId(), expiry.Sub(c.GetFinishedAt().AsTime()))
		}
	}
}
