package decider

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// healthAgain is how soon a node is looked at again that does not pass its health checks: its agent reports what it is
// made of moments after its first session.
const healthAgain = 3 * time.Second

// attemptStage makes the check of a workflow's stage; it returns true if the step has ended well.
func (d *decider) attemptStage(s *operation.Step) bool {
	switch s.Mode {
	case workflow.ReportedInstall:
		return d.awaitReport(s)
	case workflow.AwaitReplacement:
		return d.awaitReplacement(s)
	case workflow.NothingToDrain:
		return d.nothingToDrain()
	case workflow.PowerOffNode, workflow.SwitchOff:
		d.switchTo(s, kind.PowerOff)
		return false
	case workflow.SwitchOn:
		d.switchTo(s, kind.PowerOn)
		return false
	case workflow.RotateBMCPassword:
		d.rotatePassword(s)
		return false
	}
	if s.Mode == workflow.DrainNode && workflow.MustDrain(d.stageFacts()) {
		d.dispatchInCluster(s, d.limitOf(s))
		return false
	}
	v := workflow.Judge(s.Mode, d.stageFacts())
	s.Message = v.Message
	limit := s.StartedAt.Add(s.Timeout)
	switch {
	case v.Pass:
		d.stepDone(v.Evidence)
		return true
	case v.Wait && !d.past(limit):
		again := operation.LookAgain
		if s.Mode == workflow.VerifyNode {
			again = min(operation.LookAgain, healthAgain)
		}
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(again)))
	default:
		d.fail(v.Code, v.Message, false)
	}
	return false
}

// nothingToDrain ends the drain of a machine that is in no cluster; one that has joined since is drained there.
func (d *decider) nothingToDrain() bool {
	if d.w.Machine.Conditions[fleet.InCustomerCluster] {
		d.fail("STAGE_CHECK_FAILED", "the machine has joined a cluster since the drain was asked for; drain it there", false)
		return false
	}
	d.stepDone(map[string]string{evidence.NodeDrained: "the machine is in no cluster, and nothing runs on it there"})
	return true
}

// stageFacts adds what this attempt has proved to what earlier ones have.
func (d *decider) stageFacts() workflow.StageFacts {
	f := d.w.Stage
	f.Machine, f.AgentLive, f.AgentImage = d.w.Machine, d.w.TargetAgentLive, d.target().ImageDigest
	f.Evidence = map[string]string{}
	maps.Copy(f.Evidence, d.w.Stage.Evidence)
	maps.Copy(f.Evidence, d.op.Evidence)
	return f
}

// switchTo gives the switch to the agent of the machine's site, which turns it, or asks the machine's provider to.
func (d *decider) switchTo(s *operation.Step, k kind.Kind) {
	limit := d.limitOf(s)
	site := fleet.SiteFor(d.w.Candidates, kind.Of(k).Capability, d.w.Provider)
	if d.w.Provider == workflow.ProviderMAAS {
		k = kind.ProviderAction
		site = fleet.SiteFor(d.w.Candidates, kind.Of(k).Capability, d.w.Provider)
	}
	switch {
	case d.blocked():
		d.failBlocked()
	case site != nil:
		d.makeCommand(s, k, site)
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE",
			"no agent of the machine's site could switch it before the step's deadline; nothing was started", true)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(min(operation.LookAgain, 10*time.Second))))
	}
}

// rotatePassword gives the change to the agent of the machine's site.
func (d *decider) rotatePassword(s *operation.Step) {
	limit := d.limitOf(s)
	site, able := fleet.SiteForPasswords(d.w.Candidates)
	switch {
	case d.blocked():
		d.failBlocked()
	case d.w.Provider != "" && d.w.Provider != fleet.AgentProvider:
		d.fail("CAPABILITY_MISSING",
			fmt.Sprintf("provider %q keeps the passwords of its BMCs itself; change it there", d.w.Provider), false)
	case able:
		d.makeCommand(s, kind.BMCPassword, site)
	case site != nil:
		d.fail("CAPABILITY_MISSING", fmt.Sprintf("site agent %s is too old to change the passwords of BMCs; upgrade it",
			site.AgentID), false)
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE",
			"no agent of the machine's site had a session before the step's deadline; nothing was started", true)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(min(operation.LookAgain, 10*time.Second))))
	}
}

// replacementLook is how often a machine that is away for repair is looked at; its agent's session is what ends the
// wait.
const replacementLook = 10 * time.Minute

// awaitReplacement waits for the machine to come back from a replacement of its hardware: switched off and on at least
// once, which another boot of a system on its disk proves; the installer's boots don't count. It returns true if it
// has.
func (d *decider) awaitReplacement(s *operation.Step) bool {
	if _, known := s.Evidence[evidence.BootIDBefore]; !known {
		now := d.systemNow()
		d.setStepEvidence(s, now)
		d.setStepEvidence(s, map[string]string{evidence.BootIDBefore: now[evidence.HostBootID]})
	}
	before, limit := s.Evidence[evidence.BootIDBefore], s.StartedAt.Add(s.Timeout)
	h := fleet.Host(d.w.Candidates)
	switch {
	case h != nil && h.Live && h.BootID != "" && h.BootID != before:
		proof := arrival{agentID: h.AgentID, bootID: h.BootID, by: operation.ByAgentIdentity}.proof()
		proof[evidence.BootIDBefore] = before
		d.stepDone(proof)
		return true
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE", "the machine has not come back after its hardware was to be replaced", true)
	default:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(replacementLook)))
	}
	return false
}

// EvidenceReportedBy names whoever carried the report of a finished installation. It is a claim: nothing was read back.
const EvidenceReportedBy = "reported_by"

// awaitReport waits for the next report; it never ends the step well.
func (d *decider) awaitReport(s *operation.Step) bool {
	switch {
	case d.op.WaitReason != operation.WaitInstaller:
		d.wait(operation.WaitInstaller, d.now.Add(s.Timeout))
	case d.past(d.op.WakeAt):
		d.fail("INSTALLER_SILENT", fmt.Sprintf("the installer has not reported for %s", s.Timeout.Round(time.Second)), true)
	case !d.op.WakeAt.After(d.now):
		d.wait(operation.WaitInstaller, d.op.WakeAt) // the controllers were away
	}
	return false
}

// reported takes a report.
func (d *decider) reported(e operation.Reported) {
	s := d.step()
	if operation.IsTerminal(d.op.Phase) || s.Mode != workflow.ReportedInstall || s.State != operation.StepRunning {
		d.out.Refusal = &fleet.Refusal{Reason: "REPORT_REFUSED", Message: "operation " + d.op.ID +
			" decides by its own evidence"}
		return
	}
	switch {
	case e.Status == "complete":
		d.stepDone(map[string]string{EvidenceReportedBy: e.Actor})
		return
	case e.Status == "failed" && d.w.Install.Last():
		d.fail("EXECUTION_FAILED", cmp.Or(e.Error, "the installer gave no message"), true)
		return
	case e.Status == "failed":
		d.out.AttemptFailed = cmp.Or(e.Error, "the installer gave no message")
		d.note("step_retrying", d.attemptText())
	}
	d.wait(operation.WaitInstaller, d.now.Add(s.Timeout))
}
