package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/kind"
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
		explain.CommandSigns(&s.Commands[i], add)
	}
	if s.Op != nil {
		for _, st := range s.Op.Steps {
			if st.State == operation.StepSucceeded {
				add(st.FinishedAt, "step "+st.Name+" succeeded"+explain.Pairs(st.Evidence))
			}
		}
	}
	if p, at := s.ObservedPower(); p != "" {
		add(at, "the BMC says that the power is "+p)
	}
	if l := s.Site.LeaseSince(time.Time{}); l != nil {
		add(l.Given, "DHCP gave "+l.MAC+" the address "+l.Address)
	}
	return out
}

// asOfNow returns what keeps the work of a reason from being done at this moment. It does not explain ended work: texts
// name it as the present state.
func (s *scene) asOfNow(code string) verdict {
	switch {
	case s.step == nil:
	case code == "AGENT_UNAVAILABLE" && !s.ownAgentCan():
		return s.whoIsMissing()
	case code == "SITE_AGENT_SILENT" && s.siteGone(s.Now):
		return s.siteWithoutBMC(s.SiteAgents())
	case code == "INSTALLER_SILENT" && s.entering():
		return s.bootNow()
	}
	return verdict{}
}

// ownAgentCan reports whether the machine's own agent is connected and takes a step like the current one.
func (s *scene) ownAgentCan() bool {
	return s.host != nil && s.host.Live && !s.host.Locked && !s.step.IsStage() && !s.siteOnly() &&
		slices.Contains(s.host.Capabilities, kind.Of(s.step.Kind).Capability)
}

// addNow adds the present state to the explanation of ended work.
func (s *scene) addNow(e *explain.Explanation, code string) {
	v := s.asOfNow(code)
	if v.Reason == "" {
		return
	}
	e.Cause.Facts = append(e.Cause.Facts, "at this moment: "+v.Text)
	e.Actions = append(e.Actions, v.actions...)
}
