package fleet

import (
	"slices"
	"time"
)

// Candidate is an agent that might execute a step on a machine.
type Candidate struct {
	AgentID      string
	Role         string // host, site, installer
	StateID      string
	Capabilities []string
	Simulated    bool
	// Live is set when a session is open now.
	Live bool
	// LastSeen is the last heartbeat, or the zero time for an agent that never had a session.
	LastSeen time.Time
	// NotHeardUntil is the end of the time in which the agent could not be heard: its controllers were away, or it had
	// not had the time to come back to them. Zero: it always could.
	NotHeardUntil time.Time
	// OperationID is the operation that an installer serves, or that made the system of a host agent.
	OperationID string
	BootID      string
	// ImageDigest is the image that a host agent's system was made from, by its own claim.
	ImageDigest string
	// Hardware is the fingerprint of the machine that the agent runs on.
	Hardware string
}

// AgentProvider is the provider of machines that are driven by our own agents, and through their BMC where no agent
// runs on them.
const AgentProvider = "agent"

// HandOverAfter is how long a host agent may be silent before the site agent takes its steps.
const HandOverAfter = 30 * time.Second

// Route picks the executor of a step: the machine's own agent if it is up or has not been silent for long, else the
// agent of its site. Out-of-band work goes to the site agent at once. Capability is what the step needs in-band;
// provider is the machine's adapter, which the site agent must have. It returns nil while no agent can take the step.
func Route(candidates []Candidate, capability, provider string, outOfBand bool, now time.Time) *Candidate {
	host := newestHost(candidates)
	site := SiteFor(candidates, capability, provider)
	switch {
	case outOfBand || host == nil:
		return site
	case host.Live:
		return host
	case Silence(host.SilentFrom(), now) < HandOverAfter:
		return nil
	}
	return site
}

// CanDo reports whether the candidate has the capability; a site agent has those of its provider adapter.
func (c *Candidate) CanDo(capability string) bool {
	return c.Role == "site" || slices.Contains(c.Capabilities, capability)
}

func newestHost(candidates []Candidate) *Candidate {
	var best *Candidate
	for i := range candidates {
		c := &candidates[i]
		if c.Role == "host" && (best == nil || newer(c, best)) {
			best = c
		}
	}
	return best
}

// newer reports whether a is the machine's agent rather than b: one that is there before one that is not, since
// heartbeats are seconds apart.
func newer(a, b *Candidate) bool {
	if a.Live != b.Live {
		return a.Live
	}
	return a.LastSeen.After(b.LastSeen)
}

// SiteFor returns the live site agent with the capability for a machine of the provider; nil if there is none.
func SiteFor(candidates []Candidate, capability, provider string) *Candidate {
	for i := range candidates {
		c := &candidates[i]
		if c.Role == "site" && c.Live && slices.Contains(c.Capabilities, "provider:"+provider) &&
			throughProvider(capability, provider) {
			return c
		}
	}
	return nil
}

// SiteForSSH returns the live site agent that runs scripts on the machines of its site; nil if there is none.
func SiteForSSH(candidates []Candidate) *Candidate { return siteWith(candidates, "ssh") }

// SiteForClusters returns the live site agent that calls clusters for the machines of its site; nil if there is none.
func SiteForClusters(candidates []Candidate) *Candidate { return siteWith(candidates, "cluster") }

// ChangesBMCPasswords is the capability of site agents that change the passwords of BMCs.
const ChangesBMCPasswords = "bmc-password"

// SiteForPasswords returns the live site agent for the site's BMCs, and reports whether it can change their passwords;
// nil if there is none.
func SiteForPasswords(candidates []Candidate) (site *Candidate, able bool) {
	if c := siteWith(candidates, ChangesBMCPasswords); c != nil {
		return c, true
	}
	return siteWith(candidates, "provider:"+AgentProvider), false
}

func siteWith(candidates []Candidate, capability string) *Candidate {
	for i := range candidates {
		if c := &candidates[i]; c.Role == "site" && c.Live && slices.Contains(c.Capabilities, capability) {
			return c
		}
	}
	return nil
}

// throughProvider reports whether a site agent can do it at all: through a BMC it can switch a machine and choose what
// it boots; a MAAS region has actions of its own.
func throughProvider(capability, provider string) bool {
	if able, limited := siteWork[provider]; limited {
		return slices.Contains(able, capability)
	}
	return true
}

// siteWork has a site agent's capabilities for the machines of a provider. A provider that is not here does all that a
// host agent does.
var siteWork = map[string][]string{
	AgentProvider: {"power", "reboot", "netboot"},
	"maas":        {"provider_action"},
}

// Host returns the machine's own agent, live or not; nil if it never had one.
func Host(candidates []Candidate) *Candidate { return newestHost(candidates) }

// Installer returns the newest live installer of an operation; nil if there is none. Candidates are in the order of
// their enrolment.
func Installer(candidates []Candidate, operationID string) *Candidate {
	for i := range slices.Backward(candidates) {
		c := &candidates[i]
		if c.Role == "installer" && c.OperationID == operationID && c.Live {
			return c
		}
	}
	return nil
}
