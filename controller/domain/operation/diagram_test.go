package operation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// drawn renders a table as mermaid, states in the order in which they are declared.
func drawn[S ~string](title string, states []S, table map[S][]S) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n```mermaid\nstateDiagram-v2\n    [*] --> %s\n", title, states[0])
	for _, from := range states {
		for _, to := range table[from] {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
		if len(table[from]) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// drawnBoots renders what proves that a system has come up.
func drawnBoots() string {
	var b strings.Builder
	b.WriteString("\n## What proves a boot\n\nThe table of `controller/domain/operation/boottable.go`. Another boot id " +
		"alone proves none of these.\n\n" +
		"| boots | commands | evidence | `booted_system_by` | another system, seen as |\n|---|---|---|---|---|\n")
	for _, r := range operation.BootTable {
		var kinds []string
		for _, k := range r.Kinds {
			kinds = append(kinds, string(k))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Boots, strings.Join(kinds, ", "), r.Evidence,
			strings.Join(r.By, ", "), r.Wrong)
	}
	return b.String()
}

func TestDocumentShowsTheTables(t *testing.T) {
	steps := []operation.StepState{operation.StepWaiting, operation.StepRunning, operation.StepSucceeded,
		operation.StepFailed}
	document.Check(t, "states.md", "States of operations, steps and commands",
		"The tables of `controller/domain/operation/tables.go`.\n"+drawn("Operation", allPhases, operation.PhaseTable)+
			drawn("Step", steps, operation.StepTable)+drawn("Command", allCommandStates, operation.CommandTable)+drawnBoots())
}
