package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// TestCommandThatWasNotGranted: whether the agent had the command follows from the stored command, and never from the
// connections at the time of the question.
func TestCommandThatWasNotGranted(t *testing.T) {
	acknowledged := func(l *lab) {
		l.do(operation.AckedByAgent{CommandID: "cmd-1", AgentID: hostID})
	}
	for _, c := range []struct {
		name   string
		inject func(*lab)
		says   string
	}{
		{"sent, and the answer was lost", func(*lab) {}, "was sent at 12:00:00 UTC, and no acknowledgement of it is stored"},
		{"acknowledged", acknowledged, "was acknowledged at 12:00:00 UTC, and its start was not granted"},
		{"acknowledged, gone since", func(l *lab) { acknowledged(l); l.gone(hostID) },
			"was acknowledged at 12:00:00 UTC, and its start was not granted"},
	} {
		l := newLab(t).host().withoutSiteOnly().reboot().look()
		c.inject(l)
		l.after(time.Hour)
		e := l.explain()
		said := everything(e)
		if e.Rule != "failed" || e.Cause.Reason != "AGENT_UNAVAILABLE" || !strings.Contains(e.Cause.Text, c.says) {
			t.Errorf("%s: rule %s, %s: %s", c.name, e.Rule, e.Cause.Reason, said)
		}
		for _, accusation := range []string{"did not take", "no agent took", "was connected", "lies with"} {
			if strings.Contains(said, accusation) {
				t.Errorf("%s: accuses the agent:\n%s", c.name, said)
			}
		}
	}
}

// TestAnExpiredCommandBlamesNoAgent: a command expires on the way too, and an agent is not reached while its controller
// or the network is away. So nothing names the agent or its clock as the cause.
func TestAnExpiredCommandBlamesNoAgent(t *testing.T) {
	l := newLab(t).host().reboot().look().says(operation.OutcomeRefused, "COMMAND_EXPIRED", "expired at 12:00", false)
	unreached := newLab(t).host().reboot()
	unreached.gone(hostID).look().after(time.Hour)
	for _, said := range []string{everything(l.explain()), everything(unreached.explain())} {
		for _, accusation := range []string{"lies with", "clock", "busy"} {
			if strings.Contains(said, accusation) {
				t.Errorf("%q is blamed:\n%s", accusation, said)
			}
		}
	}
}

// TestAConnectedAgentKeepsNothingBack: once the machine's own agent is back, nothing is named as what keeps the work
// from being done, and no BMC is asked for.
func TestAConnectedAgentKeepsNothingBack(t *testing.T) {
	for name, start := range map[string]func(*lab) *lab{"reboot": (*lab).reboot, "reconfigure": (*lab).reconfigure} {
		l := start(newLab(t).host().withoutSiteOnly()).look()
		l.gone(hostID)
		l.after(time.Hour)
		if said := everything(l.explain()); !strings.Contains(said, "at this moment: ") {
			t.Errorf("%s: the agent is gone, and nothing is seen of it:\n%s", name, said)
		}
		l.find(hostID).Live = true
		if said := everything(l.explain()); strings.Contains(said, "at this moment: ") || strings.Contains(said, "BMC") {
			t.Errorf("%s: the agent is back, and something is in its way:\n%s", name, said)
		}
	}
}
