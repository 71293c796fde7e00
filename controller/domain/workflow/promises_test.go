package workflow_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// What the requirements say needs a person at once, by the reasons with which attempts end.
func TestFailuresThatNeedAPerson(t *testing.T) {
	for class, reasons := range map[workflow.Class][]string{
		workflow.ClassConflict: {"CLONE_DETECTED", "ENROLMENT_CONTESTED", "HARDWARE_MISMATCH"},
		workflow.ClassDisk:     {"DISK_RULE_NO_UNIQUE_MATCH"},
		workflow.ClassPXE:      {"NETBOOT_UNSUPPORTED", "NO_BOOT_PATH"},
		workflow.ClassGone:     {"MACHINE_DELETED"},
		workflow.ClassInstall:  {"INSTALL_ATTEMPTS_EXHAUSTED"},
		workflow.ClassDisagree: {"AGENT_STATE_ROLLED_BACK", "NODE_TRANSITION_ILLEGAL", "NODE_GUARD_FAILED"},
	} {
		for _, reason := range reasons {
			w := workflow.Follow(sample(workflow.Running), workflow.Attempt{Phase: "FAILED", Step: "drain-node", Reason: reason,
				Message: "as it was"})
			if w.State != workflow.FailedManual || w.FailureClass != class || w.Message != "as it was" {
				t.Errorf("%s leads to %s, %s", reason, w.State, w.FailureClass)
			}
		}
	}
}

// No stage of a workflow is a node state: inventories stay readable.
func TestNoStageIsANodeState(t *testing.T) {
	micro := "commissioning deploying waiting_for_hw_sync"
	for _, s := range node.States() {
		name := node.Name(s)
		for _, stage := range workflow.Catalogue() {
			if stage.Name == name {
				t.Errorf("stage %s is a node state", name)
			}
		}
		if strings.Contains(micro, name) {
			t.Errorf("%s is a node state", name)
		}
	}
}

// TestWhatComesNextIsSaid: of each state that has not ended, in words, and with an action that is legal there.
func TestWhatComesNextIsSaid(t *testing.T) {
	for _, s := range workflow.States() {
		for _, stalled := range []bool{false, true} {
			w := sample(s)
			w.FailureClass = workflow.ClassDisk
			action, text := workflow.Next(w, stalled)
			switch {
			case workflow.Terminal(s) != (text == ""):
				t.Errorf("%s: %q", s, text)
			case action != "" && !contains(workflow.Legal(s, stalled), action):
				t.Errorf("%s, stalled %t: %s is recommended, and not legal", s, stalled, action)
			}
		}
	}
}

func contains(all []workflow.Action, a workflow.Action) bool {
	for _, have := range all {
		if have == a {
			return true
		}
	}
	return false
}
