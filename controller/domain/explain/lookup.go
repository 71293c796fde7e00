package explain

import (
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Agent is the agent with this id; nil where there is none.
func (f *Facts) Agent(id string) *Agent {
	for i := range f.Agents {
		if f.Agents[i].AgentID == id {
			return &f.Agents[i]
		}
	}
	return nil
}

// Host is the machine's newest agent of its own, a live one first; nil where there is none.
func (f *Facts) Host() *Agent {
	var best *Agent
	for i := range f.Agents {
		a := &f.Agents[i]
		if a.Role != "host" {
			continue
		}
		if best == nil || a.Live && !best.Live || a.Live == best.Live && a.LastSeen.After(best.LastSeen) {
			best = a
		}
	}
	return best
}

// SiteAgents are the agents of the machine's site, live ones first.
func (f *Facts) SiteAgents() []*Agent {
	var live, gone []*Agent
	for i := range f.Agents {
		switch a := &f.Agents[i]; {
		case a.Role == "site" && a.Live:
			live = append(live, a)
		case a.Role == "site":
			gone = append(gone, a)
		}
	}
	return append(live, gone...)
}

// Provider is what acts on the machine.
func (f *Facts) Provider() string {
	if p := f.Machine.GetSpec().GetProvider(); p != "" {
		return p
	}
	return fleet.AgentProvider
}

// SiteName is the machine's site.
func (f *Facts) SiteName() string {
	if f.Site != nil {
		return f.Site.Name
	}
	return f.Machine.GetSpec().GetSite()
}

// Condition returns a condition of the machine, nil if it was never set.
func (f *Facts) Condition(t fleet.ConditionType) *baremetalv1.Condition {
	for _, c := range f.Machine.GetStatus().GetConditions() {
		if c.GetType() == string(t) {
			return c
		}
	}
	return nil
}

// Holds reports whether a condition is true.
func (f *Facts) Holds(t fleet.ConditionType) bool { return f.Condition(t).GetStatus() }

// Override finds the newest one of a verb for which fits holds.
func (f *Facts) Override(verb string, fits func(Override) bool) (Override, bool) {
	i := slices.IndexFunc(f.Words, func(w Override) bool { return w.Verb == verb && (fits == nil || fits(w)) })
	if i < 0 {
		return Override{}, false
	}
	return f.Words[i], true
}

// LeaseSince is the newest lease of the machine that was given after a time.
func (s *Site) LeaseSince(at time.Time) *Lease {
	var best *Lease
	if s == nil {
		return nil
	}
	for i := range s.Leases {
		l := &s.Leases[i]
		if !l.Given.Before(at) && (best == nil || l.Given.After(best.Given)) {
			best = l
		}
	}
	return best
}

// Segment is the first segment that fits; nil where none does.
func (s *Site) Segment(fits func(*Segment) bool) *Segment {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Segments, func(g Segment) bool { return fits(&g) }); i >= 0 {
		return &s.Segments[i]
	}
	return nil
}

// StrangerSince is an unknown machine that has asked to boot after a time.
func (s *Site) StrangerSince(at time.Time) *UnknownAgent {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Strangers, func(x UnknownAgent) bool { return !x.LastSeen.Before(at) }); i >= 0 {
		return &s.Strangers[i]
	}
	return nil
}

// RoleName is what texts call the agent.
func (a *Agent) RoleName() string {
	switch a.Role {
	case "site":
		return "site agent"
	case "installer":
		return "the installer"
	}
	return "the machine's agent"
}
