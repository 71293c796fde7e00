// Package start decides whether work may begin on a machine, by all that is known before the first effect. It is pure:
// facts in, a refusal or the record of the work out. Previews, offers and the calls that start work ask Admit.
package start

import (
	"cmp"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/disk"
)

// Machine is the record of a machine, with its conditions.
type Machine struct {
	fleet.Facts
	Spec *baremetalv1.MachineSpec
	// Provider is empty for a machine of our own agents.
	Provider string
	Site     string
	BootID   string
	AgentID  string
	// OperationID is the active operation; empty if none is active.
	OperationID string
	// InstallPlan is the plan of a reimage that names none; empty for the provider's default.
	InstallPlan      string
	QuarantineReason string
	// AcceptedDrift is the mark of the provider's observation that an operator has accepted.
	AcceptedDrift string
	Simulated     bool
	// HasTPM reports whether the endorsement key of a TPM is recorded.
	HasTPM bool
}

// FactKind is the kind of a Fact.
type FactKind int

// The kinds of facts, with what their Ref names.
const (
	ScriptFact           FactKind = iota // the script
	CommandFact                          // the machine's unresolved command
	CommandOperationFact                 // that command's operation
	OpenWorkflowFact                     // the machine
	ObservationFact                      // the machine
	ThresholdFact                        // the site
	NeighboursFact                       // the BMC's endpoint
	PolicyFact                           // the machine
	ImageFact                            // the image
	AnyImageFact                         // nothing
	IdentityFact                         // the machine
	SegmentsFact                         // the site
	InventoryFact                        // the machine
	InstallersFact                       // nothing
	SSHCredentialsFact                   // the credentials
	ClusterFact                          // the cluster
	BMCCredentialsFact                   // the credentials
)

// Fact names a fact that a refusal depends on besides the record of the machine.
type Fact struct {
	Kind FactKind
	Ref  string
}

// Facts are what a start is decided by. The fields before Asked are known from the beginning. Those of Asked are known
// once Learned was called for them: a start reads only what its plan depends on.
type Facts struct {
	Now     time.Time
	Request Request
	Caller  access.Caller
	Machine Machine
	// Agents might take steps on the machine, as they have registered.
	Agents []fleet.Candidate
	// Boot is what the machine boots from the network.
	Boot operation.Boot
	Plan *baremetalv1.Plan
	// Defaults and DefaultImage fill what request, plan and machine leave open.
	Defaults     plan.Defaults
	DefaultImage string
	// Stage has the facts of a workflow's stages; nil for an operation of no workflow.
	Stage *workflow.StageFacts
	// RemovesRecord reports whether the work is the last stage of a workflow that has retired the node itself: it removes
	// the record and touches no machine.
	RemovesRecord bool
	// Beginning is the workflow that AdmitWorkflow judges; nil for one that goes on.
	Beginning *Beginning

	Asked

	learned map[Fact]bool
	// work is what the plan does on this machine, once that was computed.
	work *work
}

// Asked are facts that are read where a refusal depends on them.
type Asked struct {
	// Scripts of the catalogue by name, with whether they destroy data.
	Scripts map[string]bool
	// Command is the machine's unresolved one, and CommandOperation its operation.
	Command          *operation.Command
	CommandOperation CommandOperation
	OpenWorkflow     *OpenWorkflow
	// Observation is the provider's of the machine; nil if the provider was not asked since the machine's last work.
	Observation *workflow.Observation
	Threshold   workflow.Threshold
	// Neighbours are other machines with the same BMC credentials.
	Neighbours []Neighbour
	// Policy is the first approval policy that demands approval of the work; nil if none does.
	Policy *Policy
	// Images of the catalogue by name.
	Images map[string]Image
	// AnyImage reports whether the catalogue has an operating system at all.
	AnyImage bool
	// Identity is the level that the machine's site and group require of installers.
	Identity identity.Level
	// SegmentModes are the address modes of the site's provisioning segments.
	SegmentModes []string
	Inventory    Inventory
	// Installers are the architectures that the catalogue has an installer for.
	Installers []string
	// SSHCredentials, BMCCredentials and Clusters are the names that are stored.
	SSHCredentials, BMCCredentials, Clusters map[string]bool
}

// CommandOperation is the operation of the unresolved command. Its id is known with the command.
type CommandOperation struct {
	ID     string
	Type   fleet.OperationType
	PlanID string
}

// OpenWorkflow is the workflow that holds the machine.
type OpenWorkflow struct{ ID, State string }

// Neighbour is another machine with the BMC that it names.
type Neighbour struct{ MachineID, BMCEndpoint string }

// Policy is an approval policy with the number of machines that one person may destroy the data of in 24 hours.
type Policy struct {
	Name     string
	Machines int32
}

// Image is a file of the catalogue.
type Image struct {
	disk.Image
	// Kind is OSImage, or the kind of a file of an installer.
	Kind string
}

// OSImage is the kind of an image that is written to a disk.
const OSImage = "os"

// Inventory is the newest inventory of a machine. The zero value is none, or one that cannot be read.
type Inventory struct {
	Machine    disk.Machine
	ReportedAt time.Time
}

// Learned notes that facts are known now.
func (f *Facts) Learned(facts ...Fact) {
	if f.learned == nil {
		f.learned = map[Fact]bool{}
	}
	for _, fact := range facts {
		f.learned[fact] = true
	}
}

// ours reports whether the machine is driven by our own agents.
func (m Machine) ours() bool { return m.Provider == "" || m.Provider == fleet.AgentProvider }

// work is what a plan does on a machine.
type work struct {
	steps []plan.Filled
	// fault is the refusal of a step that cannot be filled.
	fault     error
	foresight *decider.Foresight
}

func (f *Facts) filled() *work {
	if f.work == nil {
		f.work = &work{}
		f.work.steps, f.work.fault = f.fill()
	}
	return f.work
}

// steps returns the steps of the plan on this machine; none where they cannot be filled.
func (f *Facts) steps() []plan.Filled { return f.filled().steps }

func (f *Facts) fill() ([]plan.Filled, error) {
	in, spec := f.Request.Inputs, f.Machine.Spec
	in.ClusterRef, in.MachinePath = spec.GetTargetClusterRef(), spec.GetInstallPath()
	if in.ImageRef == "" {
		in.ImageRef = spec.GetDefaultImageRef()
	}
	in.ProviderImage = in.ImageRef
	if in.ImageRef == "" {
		in.ImageRef = f.DefaultImage
	}
	return plan.Fill(f.Plan, in, f.Defaults)
}

// foresight returns the answer of all steps before the first of them begins.
func (f *Facts) foresight() *decider.Foresight {
	w := f.filled()
	if w.foresight == nil {
		replaced := f.Request.AfterInstall && (!f.Machine.ours() || OnMetal(f.Machine, f.Agents))
		answer := decider.Foresee(f.snapshot(), replaced, f.Now)
		w.foresight = &answer
	}
	return w.foresight
}

// snapshot returns the operation that the work would be, before its first step.
func (f *Facts) snapshot() operation.Snapshot {
	m := f.Machine
	op := operation.Operation{MachineID: m.MachineID, Type: f.Request.Type, PlanID: f.Plan.GetPlanId(),
		Phase: operation.Pending, CreatedAt: f.Now, WakeAt: f.Now}
	for _, s := range f.steps() {
		of := plan.StepOf(s.Step)
		of.Name, of.Kind, of.Timeout, of.MaxRetries = s.Step.GetName(), s.Kind, s.Timeout, s.Retries
		of.Needs = plan.InstallerNeeds(of, m.Spec)
		op.Steps = append(op.Steps, of)
	}
	provider := cmp.Or(m.Provider, fleet.AgentProvider)
	out := operation.Snapshot{Op: op, World: operation.World{
		Machine: m.Facts, Provider: provider, TargetBootID: m.BootID, TargetAgentID: m.AgentID, Boot: f.Boot,
		Candidates: Candidates(m, f.Agents, op.Steps, provider),
	}}
	if f.Stage != nil {
		out.World.Stage = *f.Stage
	}
	for _, c := range out.World.Candidates {
		if c.AgentID == out.World.TargetAgentID {
			out.World.TargetAgentLive = c.Live
		}
	}
	return out
}

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
