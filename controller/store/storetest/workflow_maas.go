package storetest

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// answersOfMAAS returns the evidence of a site's agent for an action that has succeeded.
func answersOfMAAS(action string) map[string]string {
	out := map[string]string{evidence.ProviderSaid: "as asked"}
	for _, s := range workflow.Catalogue() {
		does := slices.ContainsFunc(s.Steps, func(step workflow.StepOf) bool {
			return step.Kind == workflow.ProviderKind &&
				step.Mode == action
		})
		if does && s.Gives != "" {
			out[s.Gives] = "true"
		}
	}
	return out
}
