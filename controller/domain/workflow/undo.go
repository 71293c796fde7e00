package workflow

import (
	"slices"
	"strings"
)

// undoDue is the evidence that names the provider's actions which a clean start must take before it begins. It stays
// until the attempt has come past them, so that a further attempt takes them again: each of them is done where nothing
// is left to undo.
const undoDue = "undo_due"

// undoing lists the actions that undo at the provider what the stages of a workflow have begun there, the last stage
// first, each once. Each stage lists first what stops work under way, then what releases the machine.
func undoing(w Workflow) []string {
	var out []string
	for i, s := range slices.Backward(w.Stages()) {
		if i > w.StageIdx && w.Evidence[s.Gives] == "" {
			continue
		}
		for _, action := range s.Undo {
			if !slices.Contains(out, action) {
				out = append(out, action)
			}
		}
	}
	return out
}

// Attempting returns the stages of the workflow's next attempt: those from its stage on. With skip it leaves out those
// whose evidence is held. A clean start's stages of undoing follow the stage that opens the attempt.
func (w Workflow) Attempting(skip bool) []Stage {
	stages := From(w.Stages(), w.Stage)
	if skip {
		stages = Unproven(stages, w.Evidence)
	}
	due := w.Evidence[undoDue]
	if due == "" || len(stages) == 0 {
		return stages
	}
	var undo []Stage
	for _, action := range strings.Split(due, ",") {
		undo = append(undo, Stage{
			Name: "undo_" + action, Kind: w.Kind, Provider: ProviderMAAS, Wired: true,
			Steps: []StepOf{{StepName("undo_" + action), ProviderKind, action}},
		})
	}
	return slices.Insert(slices.Clone(stages), 1, undo...)
}
