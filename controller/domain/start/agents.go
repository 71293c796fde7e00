package start

import (
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// Candidates returns the agents that might take the steps on the machine, with what each could do there.
func Candidates(m Machine, agents []fleet.Candidate, steps []operation.Step, provider string) []fleet.Candidate {
	var out []fleet.Candidate
	for _, c := range agents {
		if c.Role == "host" && m.Agentless {
			continue // of a system that is gone
		}
		if c.Role == "site" && provider == fleet.AgentProvider && m.Spec.GetBmcEndpoint() == "" {
			cluster := slices.ContainsFunc(steps, operation.Step.AsksCluster)
			if !reachesWithoutBMC(&c, m.Spec, cluster) {
				continue // there is nothing through which it could reach the machine
			}
		}
		out = append(out, c)
	}
	return out
}

// reachesWithoutBMC removes from a site agent the capabilities that need a BMC, and reports whether any is left:
// scripts over SSH, and what a cluster does.
func reachesWithoutBMC(c *fleet.Candidate, spec *baremetalv1.MachineSpec, cluster bool) bool {
	c.Capabilities = slices.DeleteFunc(slices.Clone(c.Capabilities), func(name string) bool {
		return (name != "cluster" || !cluster) && (name != "ssh" || spec.GetSshEndpoint() == "")
	})
	return len(c.Capabilities) > 0
}

// OnMetal reports whether our own installer writes the disks of the machine. A machine of another provider, and a
// simulated one, has none to be written from.
func OnMetal(m Machine, agents []fleet.Candidate) bool {
	return m.ours() && !m.Simulated && !slices.ContainsFunc(agents, func(c fleet.Candidate) bool {
		return c.Role == "host" && (c.Simulated || c.Live && slices.Contains(c.Capabilities, kind.Of(kind.Repave).Capability))
	})
}
