package rules

import (
	"fmt"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// sign is something that the world has shown.
type sign struct {
	at   time.Time
	text string
}

// lastEvidence is the newest thing that the world has shown about the machine.
func (s *scene) lastEvidence() (string, time.Time) {
	all := s.signs()
	if len(all) == 0 {
		return "", time.Time{}
	}
	best := all[0]
	for _, x := range all[1:] {
		if x.at.After(best.at) {
			best = x
		}
	}
	return best.text, best.at
}

func (s *scene) signs() []sign {
	var out []sign
	add := func(at time.Time, text string) {
		if !at.IsZero() && at.Unix() > 0 {
			out = append(out, sign{at, text})
		}
	}
	if s.active {
		add(s.Progress.At, fmt.Sprintf("progress of %s: %d%% %s", s.Op.CurrentStage, s.Progress.Percent, s.Progress.Message))
	}
	for _, a := range s.Agents {
		if a.Role != "site" {
			add(a.LastSeen, "heartbeat of "+a.RoleName()+" "+a.AgentID)
		}
	}
	for i := range s.Commands {
		s.commandSigns(&s.Commands[i], add)
	}
	if s.Op != nil {
		for _, st := range s.Op.Steps {
			if st.State == operation.StepSucceeded {
				add(st.FinishedAt, "step "+st.Name+" succeeded"+pairs(st.Evidence))
			}
		}
	}
	if p := s.status.GetPowerState(); p != "" && s.status.GetPowerStateAt() != nil {
		add(explain.When(s.status.GetPowerStateAt()), "the BMC says that the power is "+p)
	}
	if l := s.Site.LeaseSince(time.Time{}); l != nil {
		add(l.Given, "DHCP gave "+l.MAC+" the address "+l.Address)
	}
	return out
}

func (s *scene) commandSigns(c *operation.Command, add func(time.Time, string)) {
	add(c.AckedAt, "agent "+c.ExecutorID+" acknowledged command "+c.ID)
	add(c.ClaimedAt, "agent "+c.ExecutorID+" says that command "+c.ID+" is done")
	if c.Outcome != "" {
		text := "result of command " + c.ID + ": " + string(c.Outcome)
		if c.Message != "" {
			text += ", " + c.Message
		}
		add(c.FinishedAt, text+pairs(c.Evidence))
	}
}

func pairs(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// commandFacts tell how far the current command got.
func (s *scene) commandFacts() []string {
	if s.cmd == nil {
		return nil
	}
	c := s.cmd
	out := []string{fmt.Sprintf("command %s (%s, attempt %d) is %s with %s", c.ID, c.Kind, c.Attempt, c.State,
		c.ExecutorID)}
	switch {
	case !c.GrantedAt.IsZero():
		out = append(out, "leave to start was given at "+s.At(c.GrantedAt))
	case !c.SentAt.IsZero():
		out = append(out, "it was sent at "+s.At(c.SentAt)+", and leave to start has not been given: nothing was started")
	default:
		out = append(out, "it has not been sent: nothing was started")
	}
	if c.Message != "" {
		out = append(out, "the executor says: "+c.Message)
	}
	return out
}
