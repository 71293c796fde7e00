package operation

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// replacementLook is how often a machine that is away for repair is looked at; its agent's session is what ends the
// wait.
const replacementLook = 10 * time.Minute

// awaitReplacement waits for the machine to come back from a replacement of its hardware: switched off and on at least
// once, which another boot of a system on its disk proves; the installer's boots don't count. It returns true if it
// has.
func (d *decider) awaitReplacement(s *Step) bool {
	if _, known := s.Evidence[evidence.BootIDBefore]; !known {
		now := d.systemNow()
		d.setStepEvidence(s, now)
		d.setStepEvidence(s, map[string]string{evidence.BootIDBefore: now[evidence.HostBootID]})
	}
	before, limit := s.Evidence[evidence.BootIDBefore], s.StartedAt.Add(s.Timeout)
	h := fleet.Host(d.w.Candidates)
	switch {
	case h != nil && h.Live && h.BootID != "" && h.BootID != before:
		proof := arrival{h.AgentID, h.BootID, ByAgentIdentity}.proof()
		proof[evidence.BootIDBefore] = before
		d.stepDone(proof)
		return true
	case !d.now.Before(limit):
		d.fail("AGENT_UNAVAILABLE", "the machine has not come back after its hardware was to be replaced", true)
	default:
		d.wait(WaitAgent, earliest(limit, d.now.Add(replacementLook)))
	}
	return false
}
