// Package startcheck decides whether work may begin on a machine, by all that is known before the first effect.
// Previews and the calls that start work ask the same function.
package startcheck

import (
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/commandspec"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// World is what was read of the machine, in one transaction.
type World struct {
	Machine    dbsqlc.Machine
	Spec       *baremetalv1.MachineSpec
	Conditions []dbsqlc.MachineCondition
	// Executors are the agents that might take steps on the machine.
	Executors []dbsqlc.CandidatesForRow
	// Boot is what the machine boots from the network.
	Boot dbsqlc.BootWorldsRow
	// Freeze of the fleet.
	Freeze fleet.Freeze
	// Stage is what the stages of a workflow judge by; nil for work that is of no workflow.
	Stage *workflow.StageFacts
	Now   time.Time
}

// Work is asked for.
type Work struct {
	Type   fleet.OperationType
	PlanID string
	Steps  []plan.Filled
	// Agentless: the system that is written gets no agent. Seed: it is given a seed.
	Agentless, Seed bool
	// AfterInstall: other work replaces the machine's system before this one.
	AfterInstall bool
}

// snapshot returns the operation that the work would be, before its first step.
func (w World) snapshot(k Work) operation.Snapshot {
	m := w.Machine
	provider := pgtx.OrText(m.Provider, fleet.AgentProvider)
	op := operation.Operation{MachineID: m.MachineID, Type: k.Type, PlanID: k.PlanID, Phase: operation.Pending,
		CreatedAt: w.Now, WakeAt: w.Now}
	for _, f := range k.Steps {
		s := convert.StepOf(f.Step)
		s.Name, s.Kind, s.Timeout, s.MaxRetries = f.Step.GetName(), f.Kind, f.Timeout, f.Retries
		s.Needs = commandspec.Needs(s, w.Spec)
		op.Steps = append(op.Steps, s)
	}
	out := operation.Snapshot{Op: op, World: operation.World{
		Machine: convert.FleetFacts(m, w.Conditions), Provider: provider, TargetBootID: m.BootID,
		TargetAgentID: pgtx.StrVal(m.AgentID), Boot: BootOf(w.Boot),
		Candidates: Candidates(m, w.Spec, w.Executors, op.Steps, provider),
	}}
	out.World.Machine.Freeze = w.Freeze
	if w.Stage != nil {
		out.World.Stage = *w.Stage
	}
	for _, c := range out.World.Candidates {
		if c.AgentID == out.World.TargetAgentID {
			out.World.TargetAgentLive = c.Live
		}
	}
	return out
}

// BootOf returns what a machine boots from the network, without the token of a new assignment.
func BootOf(b dbsqlc.BootWorldsRow) operation.Boot {
	return operation.Boot{
		Mode: pgtx.OrText(b.Mode, operation.BootDisk), OperationID: pgtx.StrVal(b.OperationID), Revision: b.Revision,
		InstallerAgentID: pgtx.StrVal(b.InstallerAgentID), Applied: b.Applied, Segments: int(b.Segments),
		InstallerReady: b.Ready,
		IdentityLevel:  b.IdentityLevel, IdentityTrust: b.IdentityTrust,
		PhonedHome: convert.JSONToMap(b.PhonedHome),
	}
}

// Candidates returns the agents that might take the steps on the machine, with what each could do there.
func Candidates(
	m dbsqlc.Machine, spec *baremetalv1.MachineSpec, executors []dbsqlc.CandidatesForRow, steps []operation.Step,
	provider string,
) []fleet.Candidate {
	var out []fleet.Candidate
	for _, r := range executors {
		c := fleet.Candidate{
			AgentID: r.AgentID, Role: r.Role, StateID: r.StateID, Capabilities: r.Capabilities, Simulated: r.Simulated,
			Live: r.Live, LastSeen: pgtx.TimeVal(r.LastHeartbeatAt),
			NotHeardUntil: pgtx.TimeVal(r.SilentFrom), OperationID: pgtx.StrVal(r.OperationID), BootID: r.BootID,
			ImageDigest: r.OsImageDigest, Hardware: r.HardwareFingerprint,
		}
		if c.Role == "host" && m.Agentless {
			continue // of a system that is gone
		}
		if c.Role == "site" && provider == fleet.AgentProvider && spec.GetBmcEndpoint() == "" {
			if !reachesWithoutBMC(&c, spec, speaksToCluster(steps)) {
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

// speaksToCluster reports whether a step is done by an agent that speaks to a cluster.
func speaksToCluster(steps []operation.Step) bool {
	return slices.ContainsFunc(steps, operation.Step.AsksCluster)
}

// OnMetal reports whether our own installer writes the disks of the machine. A machine of another provider, and a
// simulated one, has none to be written from.
func OnMetal(m dbsqlc.Machine, executors []dbsqlc.CandidatesForRow) bool {
	return ours(m) && !m.Simulated && !slices.ContainsFunc(executors, func(r dbsqlc.CandidatesForRow) bool {
		return r.Role == "host" && (r.Simulated || r.Live && slices.Contains(r.Capabilities, kind.Of(kind.Repave).Capability))
	})
}

// ours reports whether the machine is driven by our own agents.
func ours(m dbsqlc.Machine) bool { return m.Provider == "" || m.Provider == fleet.AgentProvider }

// Kinds returns the kinds of the steps.
func Kinds(steps []plan.Filled) []kind.Kind {
	out := make([]kind.Kind, 0, len(steps))
	for _, s := range steps {
		out = append(out, s.Kind)
	}
	return out
}
