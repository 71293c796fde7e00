package rules_test

import (
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

// classes are the sources of the facts, by the type that declares the field. A field that is not listed fails the test.
// The empty source is for the clock, and for structs whose fields have sources of their own.
var classes = map[explain.Input]map[string]string{
	explain.Past: {
		"explain.Facts": "Op Commands Unresolved UnresolvedOp Agents Causes Words Progress Last WorkflowSince Normal",
		"explain.Agent": "Ended CertExpires CertRevoked", "explain.Site": "Applied AppliedAt Leases Strangers SilentSince",
		"explain.Lease": "MAC Segment Address Given", "explain.UnknownAgent": "MAC Segment LastSeen",
		"explain.Boot": "UpdatedAt InstallerAgentID ContenderAt Impostor", "explain.Impostor": "Reason Message At",
		"explain.Progress": "Percent Message At", "explain.Event": "At Kind Message",
		"explain.MachineCause": "Cause Subject Reason Message OperationID Since",
		"explain.Override":     "At Actor Verb Comment OperationID Data", "explain.Baseline": "P50 P95 Samples Population",
		"fleet.Candidate": "LastSeen StateID BootID ImageDigest Hardware",
		"hwid.Facts":      "Unread", "hwid.Verdict": "Outcome",
		"operation.Operation": "Error Evidence CancelRequested CreatedAt StartedAt FinishedAt",
		"operation.Error":     "Code Message Details Retryable",
		"operation.Step":      "State RetryCount Message Evidence StartedAt FinishedAt",
		"operation.Command": "State SentAt AckedAt GrantedAt ClaimedAt FinishedAt Outcome Reason Message Evidence " +
			"ExecutorStateID BootIDBefore",
		"workflow.Workflow": "Reason Message FailureClass Failures LastAction",
		"baremetalv1.MachineStatus": "NodeStateChangedAt LastInstallError InstallAttempts PowerStateAt LastHeartbeatAt " +
			"ProbedAddress",
		"baremetalv1.Condition": "LastTransition ObservedAt ObservedBy", "baremetalv1.ProviderStatus": "ChangedAt",
		"baremetalv1.Machine": "CreatedAt UpdatedAt DeletedAt", "fleet.Freeze": "Since", "rules.scene": "host exec cmd",
	},
	explain.Present: {
		"explain.Segment": "State ForeignDHCP PoolSize PoolUsed",
		"explain.Agent":   "Locked", "fleet.Candidate": "Live Capabilities",
		"explain.Facts": "Controllers Checks", "node.HealthCheck": "Name State Message",
		"baremetalv1.MachineStatus":  "PowerState AttentionReason AttentionMessage",
		"baremetalv1.ProviderStatus": "State Status Reason Message",
		"baremetalv1.Condition":      "Known",
		"condition":                  "Reachable BMCReachable Degraded HardwareFault RAIDDegraded ProviderDrift",
	},
	explain.Record: {
		"explain.Facts": "PlanID Params Site Boot Freeze Budget BudgetUntil BudgetName BudgetRaise LeftBehind Offers " +
			"Rollout InstallerReady Workflow Model Named",
		"explain.Site":    "Name Revision Segments",
		"explain.Segment": "Name Mode LeaseTime", "explain.Boot": "Mode OperationID Revision",
		"fleet.Candidate": "OperationID",
		"explain.Rollout": "ID State WaitReason Digest CreatedBy Wave At Waves Waiting",
		"explain.Offers":  "Starts NamesImage Clears Moves Restarts Workflow",
		"operation.Operation": "ID MachineID Type PlanID Phase CurrentStep CurrentStage WaitReason WakeAt Version " +
			"Destructive Slots Steps",
		"operation.Step": "Name Kind Timeout MaxRetries Mode Agentless Needs RetryAt",
		"kind.Declaration": "Action Capability Doing Entered UsesBMC NeedsInstaller DestroysSystem Restarts ProvenByBoot " +
			"Control Path Route Token",
		"operation.Command": "ID StepIdx Attempt Kind ExecutorID ExecutorRole Digest GrantSeq Deadline SettledBy",
		"workflow.Workflow": "ID MachineID Provider Kind Mode State Stage StageIdx Plan Attempts Bound Adopted Unclean " +
			"Evidence OperationID",
		"baremetalv1.ProviderStatus": "SystemId",
		"workflow.Offer":             "Legal Stalled", "fleet.Freeze": "Restored WentBack Actor Comment",
		"baremetalv1.MachineStatus": "Phase Conditions NodeState ActiveOperationId AgentId Simulated Agentless",
		"baremetalv1.MachineSpec": "Provider ProviderRef Site MacAddresses BmcEndpoint BmcCredentialsRef InstallDisk " +
			"SshEndpoint SshCredentialsRef TargetClusterRef Group",
		"rules.scene": "active step spec",
		"condition":   "Provisioned NeedsIntervention RMA RetiredFlag OperationCanceled InCustomerCluster",
	},
	0: {
		"explain.Facts": "Now Machine",
		"rules.scene":   "status Facts", "baremetalv1.MachineStatus": "Provider",
		"baremetalv1.Machine":   "MachineId Spec Status",
		"baremetalv1.Condition": "Type Status Reason Message", "explain.Agent": "Candidate",
		"fleet.Candidate": "AgentID Role", "explain.Start": "Type Plan",
	},
}

// methods are those of other packages that rules call on facts, by source. ObservedPower is among them: it returns an
// observation with its time, and so a stored event.
var methods = map[string]explain.Input{
	"operation.Command.Settled":           explain.Past,
	"hwid.Verdict.Other":                  explain.Past,
	"operation.Operation.WritesAgentless": explain.Record,
	"operation.Step.IsStage":              explain.Record,
	"operation.Step.AsksCluster":          explain.Record,
	"fleet.Freeze.Active":                 explain.Record,
	"fleet.Freeze.Reason":                 explain.Record,
	"fleet.Freeze.Cause":                  explain.Record,
	"explain.Facts.ObservedPower":         explain.Past,
	"fleet.Cause.Cures":                   explain.Record,
	"fleet.Candidate.SilentFrom":          explain.Past,
	"fleet.Refusal.Reason":                explain.Record,
	"baremetalv1.NodeState.String":        0,
}

// notFacts are types that hold no facts: they are what an answer is made of, or come from libraries.
var notFacts = []string{"explain.Explanation", "explain.Cause", "explain.Action", "explain.Baselines", "explain.class",
	"explain.Sample", "explain.StartCommand", "rules.verdict", "rules.rule",
	"rules.bootRule", "rules.remedy", "rules.nodeWait", "rules.sign", "time.",
	"strings.", "timestamppb.", "struct{"}

// class returns the source of a fact that has a name like "explain.Agent.Live".
func (p *program) class(name string) explain.Input {
	if input, ok := methods[name]; ok {
		return input
	}
	i := strings.LastIndex(name, ".")
	for input, types := range classes {
		if strings.Contains(" "+types[name[:i]]+" ", " "+name[i+1:]+" ") {
			return input
		}
	}
	for _, prefix := range notFacts {
		if strings.HasPrefix(name, prefix) {
			return 0
		}
	}
	p.unknown[name] = true
	return 0
}
