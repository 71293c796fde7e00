package rules

import (
	"cmp"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// verdict is a cause, whom it is for, and what helps against it.
type verdict struct {
	explain.Cause
	on      explain.Party
	who     string
	actions []explain.Action
}

func (v verdict) into(e *explain.Explanation) {
	e.Cause, e.WaitsOn, e.WaitsFor, e.Actions = v.Cause, v.on, v.who, v.actions
}

// waitAgent: no agent that may execute the step is there.
func (s *scene) waitAgent(e *explain.Explanation) {
	s.whoIsMissing().into(e)
	e.Since = s.step.StartedAt
	if s.cmd != nil && !s.cmd.Settled() {
		e.Since = explain.Latest(s.cmd.SentAt, e.Since)
		e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
	}
	if a := s.missing(); a != nil {
		e.Since = explain.Latest(a.LastSeen, e.Since)
	}
}

// waitNobody is waitAgent where none can be expected.
func (s *scene) waitNobody(e *explain.Explanation) {
	s.waitAgent(e)
	e.Cause.Reason = operation.WaitNobody
	e.Next, e.NextAt = "if no agent has come by then, gives up: FAILED with "+operation.WaitNobody, s.Op.WakeAt
}

// missing is the agent that is waited for, nil if there is none.
func (s *scene) missing() *explain.Agent {
	switch {
	case s.exec != nil && s.open():
		return s.exec
	case s.siteOnly():
		if all := s.SiteAgents(); len(all) > 0 {
			return all[0]
		}
		return nil
	}
	return s.host
}

// siteOnly reports whether only the site's agent can do the step.
func (s *scene) siteOnly() bool {
	of := kind.Of(s.step.Kind)
	return of.ProvenByBoot && (s.step.Mode == "bmc" || s.status.GetAgentless()) || of.Route != kind.Direct ||
		s.clusterStep() || s.switches()
}

func (s *scene) whoIsMissing() verdict {
	switch {
	case s.step.IsStage() && s.cmd == nil && !s.clusterStep() && !s.switches():
		return s.stageWaits()
	case s.exec != nil && s.open() && s.exec.Role == "site":
		return s.siteSilence(s.exec)
	case s.exec != nil && s.open():
		return s.silence(s.exec)
	case s.siteOnly():
		return s.siteTrouble()
	case s.host == nil && kind.Of(s.step.Kind).Control != kind.AwaitsAgent &&
		(s.spec.GetBmcEndpoint() != "" || s.Provider() != fleet.AgentProvider):
		v := s.siteTrouble()
		v.Facts = append(v.Facts, "no agent has ever been enrolled on the machine itself, so only its site's agent can act")
		return v
	case s.host == nil:
		return s.neverEnrolled()
	case s.host.Live && s.host.Locked:
		return verdict{explain.Cause{Reason: "AGENT_LOCKED", Text: "the machine's agent " + s.host.AgentID +
			" is locked at the machine itself"}, explain.OnOperator,
			"the person who locked agent " + s.host.AgentID, []explain.Action{explain.Unlock()}}
	case s.host.Live:
		return s.siteTrouble()
	}
	v := s.silence(s.host)
	if t := s.siteTrouble(); t.Reason != "" && s.spec.GetBmcEndpoint() != "" {
		v.Facts = append(v.Facts, "its site's agent cannot step in: "+t.Text)
	}
	return v
}

// stageWaits: a stage of a workflow is checked again and again until its time is up.
func (s *scene) stageWaits() verdict {
	v := verdict{on: explain.OnProvider, who: "what the stage is to achieve"}
	switch {
	case s.host == nil:
		v = s.neverEnrolled()
	case !s.host.Live:
		v = s.silence(s.host)
	}
	text := "the check of stage " + cmp.Or(s.step.Mode, s.step.Name) + " does not pass yet"
	if said := cmp.Or(v.Text, s.step.Message); said != "" {
		text += ": " + said
	}
	if v.Text != "" && s.step.Message != "" {
		v.Facts = append(v.Facts, "the check says: "+s.step.Message)
	}
	v.Text = text
	return v
}

func (s *scene) neverEnrolled() verdict {
	return verdict{
		explain.Cause{Reason: "AGENT_UNAVAILABLE", Text: "no agent has ever been enrolled on the machine"},
		explain.OnOperator,
		"an agent on the machine",
		[]explain.Action{{Command: "ingot token issue " + s.ID(),
			Consequence: "gives a token with which an agent on the machine enrols; a reimage through a BMC brings an agent of " +
				"its own"}},
	}
}

// silence returns why an agent is not there, as far as that is visible from outside.
func (s *scene) silence(a *explain.Agent) verdict {
	who := a.RoleName() + " " + a.AgentID
	v := verdict{
		explain.Cause{Reason: "AGENT_UNAVAILABLE", Text: who + " " + s.Seen(a)},
		explain.OnAgent,
		"agent " + a.AgentID,
		[]explain.Action{
			{Command: "ingot-agent status   (on the machine)",
				Consequence: "says whether the agent runs and reaches the controller"}, explain.Doctor(),
		},
	}
	switch {
	case !a.CertRevoked.IsZero():
		v.Reason, v.on = "CERTIFICATE_REVOKED", explain.OnOperator
		v.Text = who + " may not connect: its certificate was revoked " + s.Ago(a.CertRevoked)
		v.actions = []explain.Action{{Command: "ingot token issue " + s.ID(),
			Consequence: "gives a token with which the machine enrols anew, if it was revoked by mistake"}}
	case !a.CertExpires.IsZero() && s.Now.After(a.CertExpires):
		v.Text = who + " cannot connect: its certificate ran out " + s.Ago(a.CertExpires)
		v.actions = []explain.Action{{Command: "ingot token issue " + s.ID(),
			Consequence: "gives a token with which the machine enrols anew, if the agent does not renew its certificate by " +
				"itself"}}
	case a.Role != "site" && s.status.GetPowerState() == "off":
		v.Text += ": the machine is switched off, as its BMC says since " + s.At(explain.When(s.status.GetPowerStateAt()))
		v.actions = []explain.Action{explain.Action{Command: "ingot power on " + s.ID(),
			Consequence: "switches it on through its BMC"}.Starting(explain.StartPowerOn), s.RebootBMC()}
	case a.Role != "site" && s.Boot.Mode == operation.BootRescue:
		v.Text += ": the machine was told to boot from the network, and may run the RAM system"
	}
	if s.allSilent(a) {
		v.Facts = append(v.Facts,
			"every agent that could act on this machine is silent: look at the controller's network first")
	}
	return v
}

func (s *scene) allSilent(but *explain.Agent) bool {
	others := slices.DeleteFunc(slices.Clone(s.Agents),
		func(a explain.Agent) bool { return a.AgentID == but.AgentID || a.Role == "installer" })
	return len(others) > 0 && !slices.ContainsFunc(others, func(a explain.Agent) bool { return a.Live })
}

func (s *scene) siteSilence(a *explain.Agent) verdict {
	v := s.silence(a)
	if v.Reason == "AGENT_UNAVAILABLE" {
		v.Reason = "SITE_AGENT_SILENT"
		v.Text = "the agent of site " + s.SiteName() + ", " + a.AgentID + ", " + s.Seen(a)
	}
	v.who = "the agent of site " + s.SiteName()
	v.actions = append(
		[]explain.Action{{Command: "ingot agent list",
			Consequence: "shows which agents are connected, and since when the others are not"}}, v.actions...)
	return v
}

func (s *scene) overSSH() bool { return s.step != nil && kind.Of(s.step.Kind).Route == kind.OverSSH }

// siteTrouble returns why the site's agent cannot act on the machine; without a reason if it can.
func (s *scene) siteTrouble() verdict {
	all, who := s.SiteAgents(), "the agent of site "+s.SiteName()
	direct := s.overSSH() || s.clusterStep() // neither a BMC nor a provider is in between
	switch {
	case s.overSSH() && s.spec.GetSshEndpoint() == "":
		r := remedies["SSH_NOT_CONFIGURED"]
		return verdict{explain.Cause{Reason: "SSH_NOT_CONFIGURED", Text: r.text}, r.on, "an SSH endpoint", r.helps(s)}
	case !direct && s.Provider() == fleet.AgentProvider && s.spec.GetBmcEndpoint() == "":
		return verdict{
			explain.Cause{Reason: "NO_BOOT_PATH", Text: "the machine has no BMC, so no agent can act on it from outside"},
			explain.OnOperator,
			"a BMC",
			[]explain.Action{s.GiveBMC()},
		}
	case len(all) == 0:
		return verdict{
			explain.Cause{Reason: "SITE_AGENT_SILENT", Text: "site " + s.SiteName() + " has no agent"},
			explain.OnOperator,
			who,
			[]explain.Action{{Command: "ingot token issue --role site --site " + s.SiteName(),
				Consequence: "gives a token with which the site's agent enrols"}},
		}
	case !all[0].Live:
		return s.siteSilence(all[0])
	case s.clusterStep() && !siteCan(all, "cluster"):
		return verdict{
			explain.Cause{Reason: "CAPABILITY_MISSING", Text: who + " is connected and does not speak to clusters"},
			explain.OnAgent,
			who,
			[]explain.Action{{Command: "ingot agent list -o wide", Consequence: "shows what each site's agent can do"}},
		}
	case !direct && !siteCan(all, "provider:"+s.Provider()):
		return verdict{
			explain.Cause{
				Reason: "CAPABILITY_MISSING",
				Text:   who + " is connected and has no adapter for provider " + s.Provider(),
				Facts:  nil,
			},
			explain.OnProvider,
			"provider " + s.Provider(),
			[]explain.Action{
				{Command: "ingot agent list -o wide", Consequence: "shows which providers each site's agent can drive"},
			},
		}
	}
	return verdict{on: explain.OnAgent, who: who}
}

// waitSite: the site's agent has not taken over what the machine is to boot.
func (s *scene) waitSite(e *explain.Explanation) {
	v := s.siteTrouble()
	e.Since = explain.Latest(s.Boot.UpdatedAt, s.step.StartedAt)
	if v.Reason == "" || v.Reason == "NO_BOOT_PATH" {
		v = verdict{explain.Cause{Reason: "SITE_AGENT_SILENT", Text: "the agent of site " + s.SiteName() +
			" is connected and does not take over the site's newest document"}, explain.OnAgent, "the agent of site " +
			s.SiteName(),
			[]explain.Action{
				{Command: "ingot site get " + s.SiteName(),
					Consequence: "shows what the site's agent serves, and what keeps it from serving"}, explain.Doctor(),
			}}
		if all := s.SiteAgents(); len(all) == 0 || !all[0].Live {
			v = s.siteWithoutBMC(all)
		} else if s.Site != nil && s.Now.Sub(e.Since) < operation.LookAgain {
			v.Text = "the agent of site " + s.SiteName() + " is taking over what the machine is to boot"
			v.Reason, v.actions = "", nil
		}
	}
	if s.Site != nil {
		v.Facts = append(v.Facts, s.revisions())
		for _, g := range s.Site.Segments {
			if g.State != "" && g.State != "up" {
				v.Facts = append(v.Facts, "segment "+g.Name+" is not served: "+g.State)
			}
		}
	}
	v.into(e)
}

func (s *scene) siteWithoutBMC(all []*explain.Agent) verdict {
	if len(all) > 0 {
		return s.siteSilence(all[0])
	}
	return verdict{
		explain.Cause{Reason: "SITE_AGENT_SILENT", Text: "site " + s.SiteName() + " has no agent"},
		explain.OnOperator,
		"the agent of site " + s.SiteName(),
		[]explain.Action{{Command: "ingot token issue --role site --site " + s.SiteName(),
			Consequence: "gives a token with which the site's agent enrols"}},
	}
}
