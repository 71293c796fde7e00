package operation

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// replacementLook is how often a machine that is away for repair is looked at; its agent's session is what ends the wait.
const replacementLook = 10 * time.Minute

// awaitReplacement waits for the machine to come back from a replacement of its hardware: switched off and on at least once,
// which another boot proves. It returns true if it has.
func (d *decider) awaitReplacement(s *Step) bool {
	if _, known := s.Evidence[evidence.BootIDBefore]; !known {
		s.Evidence = map[string]string{evidence.BootIDBefore: d.w.TargetBootID}
		d.opChanged = true
	}
	before, limit := s.Evidence[evidence.BootIDBefore], s.StartedAt.Add(s.Timeout)
	switch {
	case d.w.TargetAgentLive && d.w.TargetBootID != "" && d.w.TargetBootID != before:
		d.stepDone(map[string]string{evidence.BootIDBefore: before, evidence.BootIDAfter: d.w.TargetBootID})
		return true
	case !d.now.Before(limit):
		d.fail("AGENT_UNAVAILABLE", "the machine has not come back after its hardware was to be replaced", true)
	default:
		d.wait(WaitAgent, earliest(limit, d.now.Add(replacementLook)))
	}
	return false
}
