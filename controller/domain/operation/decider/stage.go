package decider

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// healthAgain is how soon a node is evaluated again that does not pass its health checks: its agent reports the
// hardware moments after its first session.
const healthAgain = 3 * time.Second

// attemptStage makes the check of a workflow's stage.
func attemptStage(s Situation) verdict {
	switch s.Step.Mode {
	case workflow.ReportedInstall:
		return awaitReport(s)
	case workflow.AwaitReplacement:
		return noteBeforeReplacement(s)
	case workflow.NothingToDrain:
		return nothingToDrain(s)
	case workflow.PowerOffNode, workflow.SwitchOff:
		return switchTo(s, kind.PowerOff)
	case workflow.SwitchOn:
		return switchTo(s, kind.PowerOn)
	case workflow.RotateBMCPassword:
		return rotatePassword(s)
	}
	facts := stageFacts(s)
	if s.Step.Mode == workflow.DrainNode && workflow.MustDrain(facts) {
		return dispatchInCluster(s)
	}
	return judgeStage(s, workflow.Judge(s.Step.Mode, facts))
}

// judgeStage takes the verdict of a check that needs no agent.
func judgeStage(s Situation, v workflow.Verdict) verdict {
	limit, message := s.Step.StartedAt.Add(s.Step.Timeout), stepMessage{v.Message}
	switch {
	case v.Pass:
		return stepDone(s, v.Evidence).after(message)
	case v.Wait && !s.Past(limit):
		again := operation.LookAgain
		if s.Step.Mode == workflow.VerifyNode {
			again = min(operation.LookAgain, healthAgain)
		}
		return does(message, waits{operation.WaitAgent, operation.Earliest(limit, s.Now.Add(again))})
	}
	return fails(v.Code, v.Message, false)
}

// nothingToDrain ends the drain of a machine that is in no cluster; one that has joined since is drained there.
func nothingToDrain(s Situation) verdict {
	if s.World.Machine.Conditions[fleet.InCustomerCluster] {
		return fails("STAGE_CHECK_FAILED",
			"the machine has joined a cluster since the drain was asked for; drain it there", false)
	}
	return stepDone(s,
		map[string]string{evidence.NodeDrained: "the machine is in no cluster, and nothing runs on it there"})
}

// stageFacts returns the facts that stages judge by: those that the world has, and the evidence of this attempt with
// that of earlier ones.
func stageFacts(s Situation) workflow.StageFacts {
	f := s.World.Stage
	f.Machine, f.AgentLive, f.AgentImage = s.World.Machine, s.World.TargetAgentLive, s.Target().ImageDigest
	f.Evidence = merged(s.World.Stage.Evidence, s.Op.Evidence)
	return f
}

// switchTo has the agent of the machine's site turn the switch, or ask the machine's provider to.
func switchTo(s Situation, k kind.Kind) verdict {
	if s.World.Provider == workflow.ProviderMAAS {
		k = kind.ProviderAction
	}
	site := s.Site(kind.Lookup(k).Capability)
	switch {
	case s.Blocked:
		return failBlocked()
	case site != nil:
		return makeCommand(s, k, site)
	case s.Past(s.Limit()):
		return fails("AGENT_UNAVAILABLE",
			"no agent of the machine's site could switch it before the step's deadline; nothing was started", true)
	}
	return waitForSite(s)
}

// rotatePassword has the agent of the machine's site change the password.
func rotatePassword(s Situation) verdict {
	site, able := fleet.SiteForPasswords(s.World.Candidates)
	switch {
	case s.Blocked:
		return failBlocked()
	case s.World.Provider != "" && s.World.Provider != fleet.AgentProvider:
		return fails("CAPABILITY_MISSING",
			fmt.Sprintf("provider %q keeps the passwords of its BMCs itself; change it there", s.World.Provider), false)
	case able:
		return makeCommand(s, kind.BMCPassword, site)
	case site != nil:
		return fails("CAPABILITY_MISSING",
			fmt.Sprintf("site agent %s is too old to change the passwords of BMCs; upgrade it", site.AgentID), false)
	case s.Past(s.Limit()):
		return fails("AGENT_UNAVAILABLE",
			"no agent of the machine's site had a session before the step's deadline; nothing was started", true)
	}
	return waitForSite(s)
}

// replacementLook is how often a machine that is away for repair is evaluated; its agent's session is what ends the
// wait.
const replacementLook = 10 * time.Minute

// noteBeforeReplacement keeps with the step which system the machine had, and waits for the replacement.
func noteBeforeReplacement(s Situation) verdict {
	if _, known := s.Step.Evidence[evidence.BootIDBefore]; known {
		return awaitReplacement(s)
	}
	now := s.HostNow()
	before := merged(now, map[string]string{evidence.BootIDBefore: now[evidence.HostBootID]})
	return verdict{moves: []move{stepProves{before}}, then: awaitReplacement}
}

// awaitReplacement waits for the machine to come back from a replacement of its hardware: switched off and on at least
// once, which another boot of a system on its disk proves; the installer's boots don't count.
func awaitReplacement(s Situation) verdict {
	before, limit := s.Step.Evidence[evidence.BootIDBefore], s.Step.StartedAt.Add(s.Step.Timeout)
	switch h := s.Host; {
	case h != nil && h.Live && h.BootID != "" && h.BootID != before:
		proof := arrival{AgentID: h.AgentID, BootID: h.BootID, By: operation.ByAgentIdentity}.Proof()
		proof[evidence.BootIDBefore] = before
		return stepDone(s, proof)
	case s.Past(limit):
		return fails("AGENT_UNAVAILABLE", "the machine has not come back after its hardware was to be replaced", true)
	}
	return does(waits{operation.WaitAgent, operation.Earliest(limit, s.Now.Add(replacementLook))})
}

// EvidenceReportedBy names the carrier of the report of a finished installation. It is a claim: nothing was read back.
const EvidenceReportedBy = "reported_by"

// awaitReport waits for the next report.
func awaitReport(s Situation) verdict {
	switch {
	case s.Op.WaitReason != operation.WaitInstaller:
		return does(waits{operation.WaitInstaller, s.Now.Add(s.Step.Timeout)})
	case s.Past(s.Op.WakeAt):
		return fails("INSTALLER_SILENT",
			fmt.Sprintf("the installer has not reported for %s", s.Step.Timeout.Round(time.Second)), true)
	case !s.Op.WakeAt.After(s.Now):
		return does(waits{operation.WaitInstaller, s.Op.WakeAt}) // the controllers were away
	}
	return verdict{}
}

// reported takes a report of an installer that reports by itself.
func reported(s Situation, e operation.Reported) verdict {
	if s.Over || s.Step.Mode != workflow.ReportedInstall || s.Step.State != operation.StepRunning {
		return does(refuses("REPORT_REFUSED", "operation "+s.Op.ID+" decides by its own evidence"))
	}
	wait := waits{operation.WaitInstaller, s.Now.Add(s.Step.Timeout)}
	reason := cmp.Or(e.Error, "the installer gave no message")
	switch {
	case e.Status == "complete":
		done := stepDone(s, map[string]string{EvidenceReportedBy: e.Actor})
		done.then = closeOperation // a step that follows waits for the next evaluation
		return done
	case e.Status == "failed" && s.World.Install.Last():
		return fails("EXECUTION_FAILED", reason, true)
	case e.Status == "failed":
		return does(replies{attemptFailed: reason}, noted{"step_retrying", attemptText(s, reason)}, wait)
	}
	return does(wait)
}
