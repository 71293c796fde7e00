package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Clusters and providers are foreign systems; the site's agent calls them for the machine.

// inCluster reports whether the current command asks the machine's cluster.
func (s *scene) inCluster() bool { return s.cmd != nil && kind.Of(s.cmd.Kind).Action == "cluster" }

// clusterStep reports whether it is for the site's agent to speak to the cluster next.
func (s *scene) clusterStep() bool {
	if s.step == nil || !s.step.AsksCluster() {
		return false
	}
	switch token := kind.Of(s.step.Kind).Token; {
	case s.step.IsStage():
		return s.Holds(fleet.InCustomerCluster)
	case token != "":
		return s.cmd == nil || s.cmd.Kind == token && s.cmd.Outcome != operation.OutcomeSucceeded
	}
	return true
}

func (s *scene) cluster() string {
	name := cmp.Or(s.spec.GetTargetClusterRef(), s.Condition(fleet.InCustomerCluster).GetMessage())
	return strings.TrimSpace("cluster " + name)
}

func clusterGet(s *scene) explain.Action {
	return explain.Action{Command: "ingot cluster get " + cmp.Or(s.spec.GetTargetClusterRef(), "NAME"),
		Consequence: "shows the API server's address, and whose access it is"}
}

func clusterSet(s *scene) explain.Action {
	return explain.Action{
		Command: "ingot cluster set " + cmp.Or(s.spec.GetTargetClusterRef(), "NAME") + " --kubeconfig FILE",
		Consequence: "gives the cluster another address, CA or access; deploy/kubernetes/ingot-access.yaml is what the " +
			"access must allow",
	}
}

func kubeadmReset(*scene) explain.Action {
	return explain.Action{
		Command:     "kubeadm reset   (on the machine, once it is drained there)",
		Consequence: "takes the machine out of the cluster that it is in", Destructive: true,
	}
}

func nodeDescribe(s *scene) explain.Action {
	return explain.Action{Command: "kubectl describe node " + s.ID(),
		Consequence: "shows what the kubelet says of itself, and which machine it is"}
}

func podsOf(s *scene) explain.Action {
	return explain.Action{Command: "kubectl get pods --all-namespaces --field-selector spec.nodeName=" + s.ID(),
		Consequence: "shows what still runs there"}
}

func maasSet(s *scene) explain.Action {
	return explain.Action{Command: "ingot maas set " + s.region() + " --endpoint URL --key-file FILE",
		Consequence: "gives the region an address, or a key that works"}
}

func maasList(*scene) explain.Action {
	return explain.Action{Command: "ingot maas list", Consequence: "shows the regions with their addresses"}
}

// maasPage is for what only MAAS can show, or mend.
func maasPage(s *scene) explain.Action {
	where := "its page"
	if id := s.status.GetProvider().GetSystemId(); id != "" {
		where = "the page of " + id
	}
	return explain.Action{Command: "look at " + where + " in MAAS",
		Consequence: "shows its events, its scripts' results and who has it"}
}

func (s *scene) region() string { return cmp.Or(s.spec.GetProviderRef(), "default") }

// switches reports whether the site's agent switches the machine, or changes its BMC's password, by a user's order.
func (s *scene) switches() bool { return s.step != nil && workflow.Standalone(s.step.Mode) }

// throughProvider reports whether the current command is done by the machine's provider.
func (s *scene) throughProvider() bool {
	return s.cmd != nil && kind.Of(s.cmd.Kind).Route == kind.ThroughProvider
}

// providerTrouble reports whether the provider could not be asked lately.
func (s *scene) providerTrouble() bool { return s.status.GetProvider().GetReason() != "" }

func (s *scene) sayProviderTrouble(e *explain.Explanation) {
	p := s.status.GetProvider()
	s.failure(p.GetReason(), p.GetMessage()).into(e)
	e.Since = explain.When(p.GetChangedAt())
	e.Summary = "nothing is under way; what " + s.Provider() + " says of the machine is not known: " + e.Cause.Text +
		inBrackets(p.GetMessage(), e.Cause.Text)
	e.Next = "it is asked again by the site's agent, all the time"
}

// driftReasons are what it means that the provider's word does not go with ours, by its word.
var driftReasons = map[string]string{"Absent": "MAAS_MACHINE_GONE", "Failed": "MAAS_FAILED"}

// sayProviderDrift: the machine was changed by others through its provider.
func (s *scene) sayProviderDrift(e *explain.Explanation) {
	p, c := s.status.GetProvider(), s.Condition(fleet.ProviderDrift)
	reason := cmp.Or(driftReasons[p.GetState()], "MAAS_STATUS_CONFLICT")
	s.failure(reason, c.GetMessage()).into(e)
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "an operator who finds out who has worked on it there",
		explain.When(c.GetLastTransition())
	if p.GetStatus() != "" {
		e.Cause.Facts = append(e.Cause.Facts, s.Provider()+" calls it "+p.GetStatus()+inBrackets(p.GetMessage(), ""))
	}
	if s.hostSilent() {
		e.Cause.Facts = append(e.Cause.Facts, "the machine's agent "+s.host.AgentID+" "+s.Seen(s.host))
	}
	e.Summary = "nothing is under way; " + c.GetMessage() + ": " + e.Cause.Text
	e.Next = "nothing is done about it by itself; it counts as mended when both agree again"
}

// whichCredentials distinguishes the credentials that can be missing.
func whichCredentials(s *scene, v *verdict, message string) {
	switch {
	case strings.Contains(message, "MAAS region"):
		v.Text, v.who = "the MAAS region that the machine names is not stored, or its key cannot be opened", "the MAAS region"
		v.actions = []explain.Action{maasSet(s), maasList(s)}
	case strings.Contains(message, "SSH"):
		v.Text, v.who = "there are no SSH credentials of that name, or their key is lost", "the SSH credentials"
		v.actions = []explain.Action{{Command: "ingot ssh credentials set " + cmp.Or(s.spec.GetSshCredentialsRef(), "NAME") +
			" --username USER --key-file FILE",
			Consequence: "the site's agent can log in"}}
	}
}

// whyKubeadm distinguishes errors of the join from errors of kubeadm.
func whyKubeadm(s *scene, v *verdict, message string) {
	switch {
	case strings.Contains(message, "not on the machine"):
		v.Text = "kubeadm is not on the machine: put it into the image, or install it by a script"
	case strings.Contains(message, "Unauthorized") || strings.Contains(message, "401"):
		v.Text = "the cluster refused the token of the join: it had run out, or was removed"
		v.actions = append(
			[]explain.Action{explain.Action{Command: "ingot cluster join " + s.ID(),
				Consequence: "joins again, with another token"}.Starting(explain.StartJoin)}, v.actions...)
	}
}

// siteCan reports whether a live agent of the site has a capability.
func siteCan(all []*explain.Agent, capability string) bool {
	return slices.ContainsFunc(
		all,
		func(a *explain.Agent) bool { return a.Live && slices.Contains(a.Capabilities, capability) },
	)
}
