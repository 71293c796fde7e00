package workflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestDocumentShowsTheTables(t *testing.T) {
	document.Check(t, "workflow-stages.md", "Workflow stages and states", "What `controller/domain/workflow` declares.\n"+
		drawnStates()+drawnActions()+drawnStages(workflow.Decommission)+drawnStages(workflow.Onboarding)+drawnMapping())
}

func drawnStates() string {
	var b strings.Builder
	b.WriteString("\n## States\n\n```mermaid\nstateDiagram-v2\n    [*] --> PENDING\n")
	for _, from := range workflow.States() {
		for _, to := range workflow.Transitions[from] {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
		if workflow.Terminal(from) {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	return b.String() + "```\n"
}

func drawnActions() string {
	var b strings.Builder
	b.WriteString("\n## Actions by state\n\n| state | actions | when its task is stalled or lost, also |\n|---|---|---|\n")
	for _, s := range workflow.States() {
		late := ""
		if len(workflow.Legal(s, true)) > len(workflow.Legal(s, false)) {
			late = "resume"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s, strings.ToLower(join(workflow.Legal(s, false))), late)
	}
	return b.String()
}

func join[S ~string](list []S) string {
	words := make([]string, 0, len(list))
	for _, l := range list {
		words = append(words, string(l))
	}
	return strings.Join(words, ", ")
}

func drawnStages(k workflow.Kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Stages: %s\n\n| stage | steps | effect | check that can fail | compensation | modes | "+
		"machines | built |\n|---|---|---|---|---|---|---|---|\n",
		strings.ToLower(string(k)))
	for _, s := range workflow.Catalogue() {
		if s.Kind != k {
			continue
		}
		steps := make([]string, 0, len(s.Steps))
		for _, step := range s.Steps {
			steps = append(steps, step.Kind)
		}
		built := "yes"
		if !s.Wired {
			built = "`STAGE_NOT_WIRED`"
		}
		modes := strings.ToLower(join(s.Modes))
		if len(s.Modes) == 4 {
			modes = "all"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", s.Name, strings.Join(steps, ", "), s.Effect, s.Check,
			s.Compensation,
			orAll(modes), orAll(s.Where), built)
	}
	return b.String()
}

func orAll(s string) string {
	if s == "" {
		return "all"
	}
	return s
}

func drawnMapping() string {
	var b strings.Builder
	b.WriteString("\n## Node states by workflow state\n\n| kind | workflow | modes | node states |\n|---|---|---|---|\n")
	for _, p := range workflow.Mapping() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.ToLower(string(p.Kind)), p.State,
			orAll(strings.ToLower(join(p.Modes))), join(p.Nodes))
	}
	return b.String()
}
