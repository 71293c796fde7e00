package workflow

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// Plan returns the stages of a workflow on a machine, in order.
func Plan(k Kind, m Mode, t Traits) []Stage {
	var out []Stage
	for _, s := range catalogue {
		if s.Kind == k && slices.Contains(s.Modes, m) && s.of(t.Provider) && (s.When == nil || s.When(t)) {
			out = append(out, s)
		}
	}
	return out
}

// Names of stages.
func Names(stages []Stage) []string {
	out := make([]string, 0, len(stages))
	for _, s := range stages {
		out = append(out, s.Name)
	}
	return out
}

// Stages returns the rows of a workflow's plan.
func (w Workflow) Stages() []Stage {
	var out []Stage
	for _, n := range w.Plan {
		if s, ok := FindFor(w.Kind, n, w.Provider); ok {
			out = append(out, s)
		}
	}
	return out
}

// NotImplemented names the first stage that is not built, empty if all are.
func NotImplemented(stages []Stage) string {
	for _, s := range stages {
		if !s.Wired {
			return s.Name
		}
	}
	return ""
}

// From returns the stages of an attempt that goes on from a stage: those from there on, after the one that makes the
// node's state one of work in progress.
func From(plan []Stage, stage string) []Stage {
	at := max(0, slices.IndexFunc(plan, func(s Stage) bool { return s.Name == stage }))
	rest := plan[at:]
	for i := at - 1; i >= 0; i-- {
		if plan[i].Opens {
			return append([]Stage{plan[i]}, rest...)
		}
	}
	return rest
}

// SafeStage is where a resume goes on: at the stage itself, or before it where the evidence of an earlier one is lost.
func SafeStage(w Workflow, stage string) string {
	plan := w.Stages()
	for _, s := range plan {
		if s.Name == stage {
			if s.ResumeAt != "" {
				return s.ResumeAt
			}
			return stage
		}
		if s.Gives != "" && w.Evidence[s.Gives] == "" {
			return s.Name
		}
	}
	return stage
}

// StageOf finds the stage of a step by the step's name.
func StageOf(k Kind, step string) string {
	for _, s := range catalogue {
		if s.Kind == k && slices.ContainsFunc(s.Steps, func(o StepOf) bool { return o.Name == step }) {
			return s.Name
		}
	}
	return ""
}

// Steps makes the plan of an attempt.
func Steps(stages []Stage) []*baremetalv1.Step {
	var out []*baremetalv1.Step
	for _, s := range stages {
		for _, o := range s.Steps {
			out = append(out, o.step())
		}
	}
	return out
}

func (o StepOf) step() *baremetalv1.Step {
	s := kind.NewStep(kind.Kind(o.Kind), o.Name, o.Mode)
	if a := s.GetProviderAction(); a != nil {
		a.Params, s.TimeoutSeconds = providerParams[o.Name], providerSeconds[o.Mode]
	}
	return s
}

// providerParams are the parameters of provider actions, by step.
var providerParams = map[string]map[string]string{StepName(WaitDeployed): {"settle": "true"}}

// providerSeconds is how long an action of a provider may take where the default for the kind is not long enough.
var providerSeconds = map[string]int32{
	"wait_ready": 2 * 3600, "wait_deployed": 2 * 3600, "recover_deploy": 2 * 3600, "erase": 24 * 3600,
	"wait_hardware_sync": 3600,
}

// PlanID names the published plan that an attempt of such a workflow runs, or the end of.
func PlanID(k Kind, m Mode, t Traits) string {
	id := "onboard"
	if k == Decommission {
		id = "decommission-" + strings.ReplaceAll(strings.ToLower(string(m)), "_", "-")
	}
	if t.maas() {
		return id + "-maas"
	}
	return id
}

// Plans are the published plans: every stage that a machine may have, by kind and mode.
func Plans() []*baremetalv1.Plan {
	var out []*baremetalv1.Plan
	for _, provider := range []string{"agent", ProviderMAAS} {
		t := Traits{Provider: provider, BMC: true, GPU: true, Path: PathInstall}
		for _, k := range []Kind{Onboarding, Decommission} {
			for _, m := range Modes(k) {
				out = append(out, &baremetalv1.Plan{
					PlanId: PlanID(k, m, t), DisplayName: displayName(k, m, t), Steps: Steps(Plan(k, m, t)), BuiltIn: true,
				})
			}
		}
	}
	return out
}

func displayName(k Kind, m Mode, t Traits) string {
	name := "Onboard"
	if k == Decommission {
		name = "Decommission: " + strings.ReplaceAll(strings.ToLower(string(m)), "_", " ")
	}
	if t.maas() {
		return name + ", by MAAS"
	}
	return name
}

// Unproven leaves out the stages whose evidence is held.
func Unproven(stages []Stage, evidence map[string]string) []Stage {
	return slices.DeleteFunc(slices.Clone(stages), func(s Stage) bool { return evidence[s.Gives] != "" })
}
