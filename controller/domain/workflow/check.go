package workflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// StageFacts is what a stage's check may know.
type StageFacts struct {
	Kind    Kind
	Mode    Mode
	Machine fleet.Facts
	// Evidence of this attempt, and of those before since the last clean start.
	Evidence map[string]string
	// AgentLive is set when the machine's own agent has a session; AgentImage is the image of its system, by its own
	// claim.
	AgentLive  bool
	AgentImage string
	// PowerOff is set when the BMC was read as off; PowerSeenAt is when.
	PowerOff    bool
	PowerSeenAt string
	// Cluster that the machine names; ClusterKnown is set when it is stored.
	Cluster      string
	ClusterKnown bool
	// Provider drives the machine. ProviderState and ProviderPower are its last observation. RegionKnown is set when the
	// region that the machine names is stored, or when it needs none.
	Provider      string
	ProviderState maasstatus.State
	ProviderPower string
	// ProviderHeldBy is Observation.HeldBy.
	ProviderHeldBy string
	RegionKnown    bool
	// Unhealthy lists the health checks of the machine's group that do not pass, but for that of the session. It is read
	// for onboardings.
	Unhealthy []string
	// CredentialsKnown is set when the BMC credentials that the machine names are stored, or when it names none.
	CredentialsKnown bool
}

// Verdict is the answer of a check.
type Verdict struct {
	Pass bool
	// Wait is set when it may pass later.
	Wait bool
	// Code is empty where it passes; Message describes the observation.
	Code, Message string
	Evidence      map[string]string
}

func pass(seen map[string]string) Verdict { return Verdict{Pass: true, Evidence: seen} }

func failed(message string) Verdict { return Verdict{Code: "STAGE_CHECK_FAILED", Message: message} }

// Judge makes a stage's own check. A stage that is not built never passes.
func Judge(stage string, f StageFacts) Verdict {
	s, _ := Find(f.Kind, stage)
	check := checks[stage]
	if !s.Wired || check == nil {
		return Verdict{Code: "STAGE_NOT_WIRED", Message: "stage " + stage + " is not built"}
	}
	v := check(f)
	if v.Pass {
		v.Message, _, _ = strings.Cut(s.Check, ";")
	}
	return v
}

var checks = map[string]func(StageFacts) Verdict{
	DisableNode:    disabled,
	ForceRelease:   released,
	DrainNode:      drained,
	ValidateClean:  clean,
	RetireNode:     erased,
	RemoveRecord:   erased,
	CleanupSecrets: func(StageFacts) Verdict { return pass(nil) },
	ApproveNode:    approved,
	ResolvePower:   powerResolved,
	VerifyNode:     verified,
}

func disabled(f StageFacts) Verdict {
	if f.Machine.Phase != fleet.Maintenance {
		return failed("the machine is in phase " + string(f.Machine.Phase) +
			", and others may be given work on it; enter maintenance")
	}
	return pass(nil)
}

func released(f StageFacts) Verdict {
	switch {
	case !f.Machine.Conditions[fleet.InCustomerCluster]:
		return pass(map[string]string{"allocations": "none"})
	case !f.ClusterKnown:
		return unknownCluster(f)
	}
	return pass(map[string]string{"allocations": "cluster " + f.Cluster + ", until it is drained"})
}

func drained(f StageFacts) Verdict {
	switch {
	case f.Machine.Conditions[fleet.Drained]:
		return pass(map[string]string{"drained": "condition Drained"})
	case f.Machine.Conditions[fleet.InCustomerCluster] && !f.ClusterKnown:
		return unknownCluster(f)
	case f.Machine.Conditions[fleet.InCustomerCluster]:
		return failed("the machine is in cluster " + f.Cluster + " and not drained")
	}
	return pass(map[string]string{"drained": "in no customer's cluster"})
}

// unknownCluster: a cluster that cannot be reached cannot be drained.
func unknownCluster(f StageFacts) Verdict {
	if f.Cluster == "" {
		return Verdict{Code: "CLUSTER_NOT_CONFIGURED",
			Message: "the machine is in a customer's cluster and names none; set its target_cluster_ref"}
	}
	return Verdict{Code: "CLUSTER_NOT_FOUND", Message: "the machine is in cluster " + f.Cluster +
		", which is not stored; see `ingot cluster set`"}
}

// MustDrain reports whether the stage drain_node takes more than a look: the machine is in a cluster that can be spoken
// to.
func MustDrain(f StageFacts) bool {
	return f.Machine.Conditions[fleet.InCustomerCluster] && !f.Machine.Conditions[fleet.Drained] && f.ClusterKnown
}

// needed names the evidence of a clean machine, by mode.
var needed = map[Mode][]string{
	SoftReset:        {evidence.BootIDAfter},
	Reimage:          {evidence.ImageDigest},
	StorageCleanup:   {evidence.EraseMethod, evidence.ImageDigest},
	FullDecommission: {evidence.EraseMethod},
}

// neededOf is needed of machines whose systems MAAS writes: it shows the deployed system, and no digest.
func neededOf(f StageFacts) []string {
	keys := slices.Clone(needed[f.Mode])
	for i, key := range keys {
		if key == evidence.ImageDigest && f.Provider == ProviderMAAS {
			keys[i] = evidence.Deployed
		}
	}
	return keys
}

func clean(f StageFacts) Verdict {
	keys := neededOf(f)
	for _, key := range keys {
		if f.Evidence[key] == "" {
			return failed("there is no evidence " + key)
		}
	}
	return pass(map[string]string{"clean": strings.Join(keys, ",")})
}

func erased(f StageFacts) Verdict {
	if f.Evidence[evidence.EraseMethod] == "" {
		return failed("the erasure of the disks has not been verified")
	}
	return pass(nil)
}

// approved: an identity that was in service is not onboarded again.
func approved(f StageFacts) Verdict {
	switch f.Machine.NodeState {
	case fleet.Discovered, fleet.Pending, fleet.Installing, fleet.Installed, fleet.BootstrapIssued, fleet.Enrolling:
		return pass(nil)
	}
	return failed("the node is " + string(f.Machine.NodeState) + "; only a new one can be onboarded")
}

func powerResolved(f StageFacts) Verdict {
	if f.Provider == ProviderMAAS && !f.RegionKnown {
		return failed("the MAAS region that the machine names is not stored; see `ingot maas set`")
	}
	if !f.CredentialsKnown {
		return failed("the BMC credentials that the machine names are not stored; see `ingot bmc`")
	}
	return pass(nil)
}

func verified(f StageFacts) Verdict {
	written := f.Evidence[evidence.ImageDigest]
	switch {
	case !f.AgentLive:
		v := failed("the machine's agent has no session")
		v.Wait = true
		return v
	case written != "" && f.AgentImage != "" && !strings.EqualFold(bare(f.AgentImage), bare(written)):
		return failed("image " + written + " was written, and the system says that it was made from " + f.AgentImage)
	case len(f.Unhealthy) > 0:
		v := failed("the node does not pass its health checks: " + strings.Join(f.Unhealthy, "; "))
		v.Wait = true
		return v
	}
	return pass(map[string]string{"verified": "agent live"})
}

// Observed returns whether a stage's effect can be seen without doing it.
func Observed(s Stage, f StageFacts) Verdict {
	switch s.Name {
	case DrainNode:
		return drained(f)
	case WaitForEnrollment:
		if !f.AgentLive {
			return failed("the machine's agent has no session")
		}
		return pass(nil)
	case PowerOffNode:
		if !f.PowerOff {
			return failed("the BMC does not say that the machine is off")
		}
		return pass(map[string]string{evidence.PowerOffSeenAt: f.PowerSeenAt})
	}
	if s.Provider == ProviderMAAS {
		return providerShows(s.Name, f)
	}
	return failed("nothing shows it")
}

func bare(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
