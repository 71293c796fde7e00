package rules_test

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// maas puts the machine into a MAAS region, with a state there.
func (l *lab) maas(state, reason, message string) *lab {
	l.f.Machine.Spec.Provider, l.f.Machine.Spec.ProviderRef, l.f.Machine.Spec.BmcEndpoint = "maas", "berlin-maas", ""
	l.f.Machine.Status.Provider = &baremetalv1.ProviderStatus{
		Provider: "maas", State: state, Status: state, SystemId: "sys001", Reason: reason, Message: message,
		ChangedAt: timestamppb.New(l.now),
	}
	a := l.find(siteID)
	a.Capabilities = append(a.Capabilities, "provider:maas", "provider_action")
	return l
}

func (l *lab) action(name string) *lab {
	return l.start(fleet.RunPlan, operation.Step{Kind: kind.ProviderAction, Mode: name, MaxRetries: 2}).look()
}

// member is a machine in a cluster, to which its site's agent speaks.
func (l *lab) member() *lab {
	l.f.Machine.Spec.TargetClusterRef = "prod"
	l.condition(fleet.InCustomerCluster, true, "NodeReady", "prod")
	a := l.find(siteID)
	a.Capabilities = append(a.Capabilities, "cluster")
	return l.host()
}

func (l *lab) drain() *lab {
	return l.start(fleet.RunPlan, operation.Step{Kind: kind.Drain, MaxRetries: 2}).look()
}

// faultsOutside are faults of foreign systems.
var faultsOutside = []fault{
	{"MAAS region silent while it is asked", func(l *lab) {
		l.maas("Unknown", "MAAS_UNREACHABLE", "look for the machine: MAAS has no time now (HTTP 503)").action(
			"wait_deployed").granted().after(time.Minute)
	}, "MAAS_UNREACHABLE", explain.OnProvider, []string{"wait_deployed", "HTTP 503"}, "OUTCOME_UNKNOWN",
		"ingot maas set berlin-maas"},
	{"MAAS region silent at rest", func(l *lab) {
		l.maas("Unknown", "MAAS_UNREACHABLE", "connection refused").host()
	}, "MAAS_UNREACHABLE", explain.OnProvider, []string{"nothing is under way", "connection refused"}, "asked again",
		"ingot maas list"},
	{"machine deleted in MAAS", func(l *lab) {
		l.maas("Absent", "", "").host().condition(fleet.ProviderDrift, true, "UnexpectedAbsent",
			"the provider says Absent, and the node is active")
	}, "MAAS_MACHINE_GONE", explain.OnOperator, []string{"the provider says Absent", "MAAS has no such machine"}, "mended",
		"ingot maas list"},
	{"machine released in MAAS, and silent", func(l *lab) {
		l.maas("Ready", "", "").host().gone(hostID).condition(fleet.ProviderDrift, true, "UnexpectedReady",
			"the provider says Ready, and the node is active")
	}, "MAAS_STATUS_CONFLICT", explain.OnOperator, []string{"another party has worked on it", "was heard last"}, "mended",
		"the page of sys001"},
	{"no agent for MAAS", func(l *lab) { l.maas("Ready", "", "").host().gone(siteID).action("deploy") },
		"SITE_AGENT_SILENT", explain.OnAgent, []string{"berlin"}, "AGENT_UNAVAILABLE", "ingot agent list"},
	{"MAAS region that is not stored", func(l *lab) {
		l.maas("Unknown", "", "").action("create").granted().fails("CREDENTIALS_NOT_FOUND",
			`there is no MAAS region "berlin-maas"; see 'ingot maas set'`)
	}, "CREDENTIALS_NOT_FOUND", explain.OnOperator, []string{"MAAS region"}, "", "ingot maas set berlin-maas"},
	{"SSH credentials that are gone", func(l *lab) {
		l.ssh().fails("CREDENTIALS_NOT_FOUND", `there are no SSH credentials "root"`)
	}, "CREDENTIALS_NOT_FOUND", explain.OnOperator, []string{"SSH credentials"}, "", "ingot ssh credentials set"},
	{"drain that waits for a budget", func(l *lab) { l.member().drain().granted().after(10 * time.Second) },
		"", explain.OnProvider, []string{"cluster prod", "is being drained"}, "OUTCOME_UNKNOWN", "ingot cancel"},
	{"drain that a pod blocks", func(l *lab) {
		l.member().drain().granted().fails("DRAIN_BLOCKED", "pods may not be evicted: default/alone")
	}, "DRAIN_BLOCKED", explain.OnOperator, []string{"default/alone", "took its own cordon back"}, "", "kubectl get pods"},
	{"API server gone", func(l *lab) {
		l.member().drain().granted().fails("CLUSTER_UNREACHABLE", "connection refused")
	}, "CLUSTER_UNREACHABLE", explain.OnOperator, []string{"the cause lies with cluster prod", "connection refused"}, "",
		"ingot cluster get prod"},
	{"nobody speaks to the cluster", func(l *lab) {
		l.member()
		l.find(siteID).Capabilities = []string{"power"}
		l.drain()
	}, "CAPABILITY_MISSING", explain.OnAgent, []string{"does not speak to clusters"}, "AGENT_UNAVAILABLE",
		"ingot agent list"},
	{"stage that drains, and no site agent", func(l *lab) {
		l.member().gone(siteID).start(fleet.RunPlan, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.DrainNode})
		l.f.Op.Phase, l.f.Op.WaitReason, l.f.Op.Steps[0].StartedAt = operation.Running, operation.WaitAgent, l.now
	}, "SITE_AGENT_SILENT", explain.OnAgent, []string{"the agent of site berlin"}, "STAGE_CHECK_FAILED",
		"ingot agent list"},
	{"result that came late", func(l *lab) {
		l.maas("Deploying", "", "").action("wait_deployed").granted().after(time.Hour)
		l.says(operation.OutcomeFailed, "MAAS_FAILED", "still waiting for MAAS to deploy the machine when the time was up",
			true)
	}, "MAAS_FAILED", explain.OnOperator, []string{"still waiting for MAAS", "came after its time was up"}, "", "in MAAS"},
	{"kubeadm fails", func(l *lab) {
		l.member().start(fleet.RunPlan, operation.Step{Kind: kind.Join}).look().granted()
		l.says(operation.OutcomeFailed, "KUBEADM_FAILED", "exit status 1; its output is in the operation's log", false)
	}, "KUBEADM_FAILED", explain.OnOperator, []string{"kubeadm has not joined", "exit status 1"}, "", "ingot logs op-1"},
	{"token of a join that ran out", func(l *lab) {
		l.member().start(fleet.RunPlan, operation.Step{Kind: kind.Join}).look().granted()
		l.says(operation.OutcomeFailed, "KUBEADM_FAILED", "kubeadm join: exit status 1: error: 401 Unauthorized", false)
	}, "KUBEADM_FAILED", explain.OnOperator, []string{"refused the token"}, "", "ingot cluster join m-1"},
	{"nobody to switch it off", func(l *lab) {
		l.host().gone(siteID).start(fleet.RunPlan, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.SwitchOff}).look()
	}, "SITE_AGENT_SILENT", explain.OnAgent, []string{"the agent of site berlin"}, "STAGE_CHECK_FAILED",
		"ingot agent list"},
	{"being switched off", func(l *lab) {
		l.host().start(fleet.RunPlan, operation.Step{Kind: kind.WorkflowStage,
			Mode: workflow.SwitchOff}).look().granted().after(time.Second)
	}, "", explain.OnBMC, []string{"the BMC is switching the machine off"}, "OUTCOME_UNKNOWN", "ingot cancel"},
	{"kubelet of another cluster", func(l *lab) {
		l.member().start(fleet.RunPlan, operation.Step{Kind: kind.Join}).look().granted()
		l.says(operation.OutcomeRefused, "CLUSTER_OTHER_MEMBER",
			"the machine is in another cluster, at https://elsewhere:6443", false)
	}, "CLUSTER_OTHER_MEMBER", explain.OnOperator, []string{"belongs to another cluster", "elsewhere"}, "",
		"kubeadm reset"},
}
