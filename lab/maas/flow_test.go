package maas_test

import (
	"fmt"
	"maps"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// most is how many actions an operator takes before the flow counts as a dead end.
const most = 10

// flow is one way of a machine through MAAS. begin is the machine that it starts with; nil is one that MAAS doesn't
// know.
type flow struct {
	name  string
	begin *maastest.Machine
	run   func(r *rig) (end string)
	// after are the ends that the machine may have.
	after func(m maastest.Machine, there bool) bool
	// region's own settings; deployments that an operation may make, 0 for one.
	region      maastest.Config
	deployments int
}

func inService() *maastest.Machine {
	return &maastest.Machine{
		Status: ms.Deployed, Series: "noble", BootMode: "auto",
		Annotations: map[string]string{"ingot-machine": machineID, "ingot-operation": "op-0"},
	}
}

func isDeployed(m maastest.Machine, there bool) bool {
	return there && m.Status == ms.Deployed && ours(m)
}

// flows are those of the promise: machines come in, are installed anew, erased, and taken out.
func flows() []flow {
	steps := func(p *baremetalv1.Plan) func(*rig) string { return func(r *rig) string { return r.plan(p, nil) } }
	of := func(k workflow.Kind, m workflow.Mode) func(*rig) string {
		return func(r *rig) string { return r.workflow(k, m) }
	}
	in, out := of(workflow.Onboarding, workflow.NoMode), of(workflow.Decommission, workflow.FullDecommission)
	ready := func(failures ...string) *maastest.Machine {
		return &maastest.Machine{Status: ms.Ready, BootMode: "auto", FailDeploy: failures}
	}
	byHand := inService()
	byHand.PowerType = "manual"
	return []flow{
		{name: "onboard", run: in, after: isDeployed},
		{name: "onboard what MAAS knows", run: in, after: isDeployed,
			begin: &maastest.Machine{Status: ms.New, BootMode: "link_up", Uncommissioned: true}},
		{name: "onboard without a data source", begin: ready("no datasource found"), run: in, after: isDeployed,
			deployments: 2},
		{name: "deploy", begin: ready(), after: isDeployed,
			run: func(r *rig) string { return r.plan(planOf("deploy", "wait_deployed"), isDeployed) }},
		{name: "reimage", begin: inService(), run: steps(plan.RepaveByMAAS()), after: isDeployed},
		{name: "erase", begin: inService(), run: steps(planOf("erase")), after: func(m maastest.Machine, there bool) bool {
			return there && m.Status == ms.Ready && m.Erased() > 0
		}},
		{name: "reimage by a workflow", begin: inService(), run: of(workflow.Decommission, workflow.Reimage),
			after: isDeployed},
		{name: "storage cleanup", begin: inService(), run: of(workflow.Decommission, workflow.StorageCleanup),
			after: func(m maastest.Machine, there bool) bool { return isDeployed(m, there) && m.Erased() > 0 }},
		{name: "decommission", begin: inService(), run: out, after: isGone},
		{name: "decommission where MAAS erases by itself", begin: inService(), run: out, after: isGone,
			region: maastest.Config{EraseOnRelease: true}},
		{name: "decommission by hand", begin: byHand, run: out, after: isGone},
	}
}

func isGone(_ maastest.Machine, there bool) bool { return !there }

func planOf(actions ...string) *baremetalv1.Plan {
	p := &baremetalv1.Plan{}
	for _, a := range actions {
		p.Steps = append(p.Steps, &baremetalv1.Step{
			Name: workflow.StepName(a),
			Kind: &baremetalv1.Step_ProviderAction{ProviderAction: &baremetalv1.ProviderAction{Action: a}},
		})
	}
	return p
}

// attempt is one operation: its steps in order, each tried once more where its failure may be mended by that.
type attempt struct {
	r         *rig
	operation string
	evidence  map[string]string
	kind      workflow.Kind
	mode      workflow.Mode
	node      *fleet.NodeState
}

// step takes one step; reason is empty where it succeeded.
func (a *attempt) step(s *baremetalv1.Step) (reason, message string) {
	switch k := s.GetKind().(type) {
	case *baremetalv1.Step_ProviderAction:
		for tries := 0; ; tries++ {
			out := a.r.run(a.operation, k.ProviderAction.GetAction(), k.ProviderAction.GetParams())
			switch {
			case out.Outcome == fleetv1.CommandResult_SUCCEEDED:
				maps.Copy(a.evidence, out.Evidence)
				return "", ""
			case out.Outcome == fleetv1.CommandResult_UNKNOWN:
				return "OUTCOME_UNKNOWN", out.Message
			case !out.Retryable || tries == 1:
				return out.Reason.String(), out.Message
			}
		}
	case *baremetalv1.Step_WaitForAgent:
		if m, there := a.r.region.ByMAC(mac); !isDeployed(m, there) {
			return "AGENT_UNAVAILABLE", "the machine's agent has no session"
		}
	case *baremetalv1.Step_WorkflowStage:
		if v := workflow.Judge(k.WorkflowStage.GetStage(), a.facts()); !v.Pass {
			return v.Code, v.Message
		}
	default:
		a.r.bad("a step of another kind: %v", s)
	}
	return "", ""
}

// facts is what the controller knows.
func (a *attempt) facts() workflow.StageFacts {
	m, there := a.r.region.ByMAC(mac)
	f := workflow.StageFacts{
		Kind: a.kind, Mode: a.mode, Evidence: a.evidence, AgentLive: isDeployed(m, there), Provider: workflow.ProviderMAAS,
		ProviderState: ms.StateAbsent, RegionKnown: true, CredentialsKnown: true,
		Machine: fleet.Facts{Phase: fleet.Maintenance, Conditions: map[fleet.ConditionType]bool{}},
	}
	if a.node != nil {
		f.Machine.NodeState = *a.node
	}
	if there {
		row, _ := ms.Of(m.Status)
		f.ProviderState, f.ProviderPower = row.State, m.Power
		if !ours(m) {
			f.ProviderHeldBy = "it is not ours"
		}
	}
	return f
}

// plan runs a plan. Where it fails, an operator mends the cause in the message and starts it again, unless MAAS shows
// the plan's result.
func (r *rig) plan(p *baremetalv1.Plan, shown func(maastest.Machine, bool) bool) string {
	for n := 1; n <= most; n++ {
		a := &attempt{r: r, operation: fmt.Sprintf("op-%d", n), evidence: map[string]string{}}
		reason, message := "", ""
		for _, s := range p.GetSteps() {
			if reason, message = a.step(s); reason != "" {
				break
			}
		}
		switch reason {
		case "":
			return "done"
		case "MAAS_MACHINE_GONE":
			return "gone"
		}
		if m, there := r.region.ByMAC(mac); shown != nil && shown(m, there) {
			r.say("operator: MAAS shows that it is done, after %q", message)
			return "done"
		}
		r.mend(message)
	}
	return "a dead end"
}

// workflow runs one, and takes the action that is recommended wherever it fails.
func (r *rig) workflow(k workflow.Kind, m workflow.Mode) string {
	node := fleet.Active
	if k == workflow.Onboarding {
		node = fleet.Discovered
	}
	stages := workflow.Plan(k, m, workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true, Path: workflow.PathInstall})
	names := workflow.Names(stages)
	w := workflow.Workflow{
		Kind: k, Mode: m, Provider: workflow.ProviderMAAS, State: workflow.Pending, Plan: names, Stage: names[0], Attempts: 1,
	}
	for n := 1; ; n++ {
		a := &attempt{r: r, operation: fmt.Sprintf("op-%d", n), evidence: maps.Clone(w.Evidence), kind: k, mode: m,
			node: &node}
		if a.evidence == nil {
			a.evidence = map[string]string{}
		}
		w = a.follow(w, stages)
		if workflow.Terminal(w.State) {
			return "done"
		}
		if n == most {
			return "a dead end"
		}
		r.mend(w.Message)
		effect := r.act(&w, a)
		switch {
		case w.State == workflow.Cancelled && w.FailureClass == "" || effect == nil:
			return "refused"
		case w.State == workflow.Cancelled:
			return "gone"
		}
		stages = w.Attempting(effect.Skip)
	}
}

// act takes the action that is recommended.
func (r *rig) act(w *workflow.Workflow, a *attempt) *workflow.Effect {
	offer := workflow.Offer{Refused: map[workflow.Action]*fleet.Refusal{}}
	facts := workflow.Facts{Stage: a.facts()}
	for _, action := range workflow.Legal(w.State, false) {
		if _, refusal := workflow.Act(*w, action, facts); refusal != nil {
			offer.Refused[action] = refusal
		} else {
			offer.Legal = append(offer.Legal, action)
		}
	}
	action, text := workflow.Recommend(*w, offer)
	r.say("workflow %s at %s, %s (%s): recommended is %q: %s", w.State, w.Stage, w.Reason, w.FailureClass, action, text)
	if action == "" {
		return nil
	}
	effect, refusal := workflow.Act(*w, action, facts)
	if refusal != nil {
		r.say("refused: %v", refusal)
		return nil
	}
	if action == workflow.Cancel && w.FailureClass != workflow.ClassGone {
		r.bad("a workflow is cancelled that fails for %s", w.Reason)
	}
	class := w.FailureClass
	*w = effect.Workflow
	if action == workflow.Cancel {
		w.FailureClass = class
	}
	if effect.Reset {
		a.moves(workflow.Resetting(*w, *a.node))
	}
	return &effect
}

func (a *attempt) moves(list []workflow.Move) {
	for _, m := range list {
		*a.node = m.To
	}
}

// follow runs the stages, and lets the workflow follow them as the controller does.
func (a *attempt) follow(w workflow.Workflow, stages []workflow.Stage) workflow.Workflow {
	last := ""
	for _, st := range stages {
		a.moves(workflow.At(st.Name, *a.node))
		for _, s := range workflow.Steps([]workflow.Stage{st}) {
			last = s.GetName()
			w = workflow.Follow(w, workflow.Attempt{Phase: "RUNNING", Step: last, Evidence: maps.Clone(a.evidence),
				Granted: true})
			if reason, message := a.step(s); reason != "" {
				w = workflow.Follow(w, workflow.Attempt{
					Phase: "FAILED", Step: last, Reason: reason, Message: message, Evidence: maps.Clone(a.evidence),
				})
				a.moves(workflow.Ending(w, *a.node, a.facts().AgentLive))
				return w
			}
		}
	}
	w = workflow.Follow(w, workflow.Attempt{Phase: "SUCCEEDED", Step: last, Evidence: maps.Clone(a.evidence)})
	a.moves(workflow.Ending(w, *a.node, a.facts().AgentLive))
	if a.mode == workflow.FullDecommission && a.evidence[evidence.EraseMethod] == "" {
		a.r.bad("a machine is decommissioned without an erasure")
	}
	return w
}
