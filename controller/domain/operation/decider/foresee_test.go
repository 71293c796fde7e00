package decider_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// TestAPreviewAsksOfTheSystemOnlyWhatExistsBeforeTheWork: a health check and a reboot that follow a written system are
// about that system, and are left to the work. Without the write, they are asked.
func TestAPreviewAsksOfTheSystemOnlyWhatExistsBeforeTheWork(t *testing.T) {
	await := operation.Step{Kind: kind.WaitForAgent}
	for name, c := range map[string]struct {
		step     operation.Step
		silent   bool // the machine's agent has no session
		replaced bool // other work writes another system before
		asked    bool
	}{
		"a health check":                    {operation.Step{Kind: kind.WorkflowStage, Mode: workflow.VerifyNode}, true, false, false},
		"a reboot without an agent":         {reboot(), true, false, true},
		"a reboot into the new system":      {reboot(), false, true, false},
		"a wait for the new system's agent": {await, false, true, false},
		"a configuration of the system":     {reconfig(), false, false, false},
		"a configuration of the new system": {reconfig(), false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t, c.step)
			if c.silent {
				s.world.TargetAgentLive = false
				s.setAgents(host("s-1", false))
				s.world.Candidates[0].LastSeen = t0
			}
			f := decider.Foresee(s.snapshot(operation.Evaluate{}), c.replaced, t0)
			if f.Refusal != nil {
				t.Fatalf("refused: %+v", f.Refusal)
			}
			if asked := len(f.NotAsked) > 0; asked != c.asked {
				t.Errorf("left to the work: %q", f.NotAsked)
			}
		})
	}
}

// TestAPreviewCountsTheAttemptThatTheWorkWouldSpend: a step that fails after the last counted write spends the node's
// last attempt, and the preview is refused with the work's reason.
func TestAPreviewCountsTheAttemptThatTheWorkWouldSpend(t *testing.T) {
	s := newStored(t, operation.Step{Kind: kind.Repave}, operation.Step{Kind: kind.TestHardware})
	s.world.Install = operation.Install{Counted: true, Failed: 2, Max: 3}
	f := decider.Foresee(s.snapshot(operation.Evaluate{}), false, t0)
	if f.Refusal == nil || f.Refusal.Reason != "INSTALL_ATTEMPTS_EXHAUSTED" {
		t.Errorf("refused with %+v", f.Refusal)
	}
}
