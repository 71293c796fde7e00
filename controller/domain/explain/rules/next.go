package rules

import (
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// next is what happens next by itself, and when at the latest.
func (s *scene) next() (string, time.Time) {
	switch {
	case s.step == nil || s.Op.Phase == operation.Pending:
		return "a controller starts it", s.Op.WakeAt
	case !s.Op.CancelRequested.IsZero() && s.granted():
		return "ends as FAILED with OUTCOME_UNKNOWN if the executor does not answer, and the machine is fenced",
			explain.Earliest(s.cmd.Deadline, s.Op.CancelRequested.Add(operation.CancelPatience))
	case s.Op.WaitReason == operation.WaitRetry && s.step.RetryCount > s.step.MaxRetries:
		return fmt.Sprintf("begins install attempt %d of %d", s.status.GetInstallAttempts()+1, node.MaxAttempts),
			s.step.RetryAt
	case s.Op.WaitReason == operation.WaitRetry:
		return fmt.Sprintf("tries again (retry %d of %d)", s.step.RetryCount, s.step.MaxRetries), s.step.RetryAt
	case s.Op.WaitReason == operation.WaitInstaller:
		return s.nextWay(), s.Op.WakeAt
	case s.granted() && kind.Of(s.step.Kind).ProvenByBoot && s.Op.WritesAgentless():
		return "if it has not phoned home by then, gives up: FAILED with PHONE_HOME_MISSING", s.cmd.Deadline
	case s.Op.WaitReason == operation.WaitEvidence && s.cmd != nil:
		return "if nothing confirms it by then, gives up: FAILED with EVIDENCE_MISSING, and the machine is fenced until it " +
			"shows another boot", s.cmd.Deadline
	case s.granted():
		return s.nextGranted()
	}
	return s.nextUngranted()
}

// refusedNext: a request for a grant is refused.
func (s *scene) refusedNext(e *explain.Explanation) {
	_, at := s.next()
	e.Next, e.NextAt = "when its executor asks for a grant it gets none, and the operation ends FAILED with "+
		"GRANT_REFUSED; nothing will have been started by this step", at
}

// nextWay is what follows when the installer stays silent.
func (s *scene) nextWay() string {
	if s.step.RetryCount < s.step.MaxRetries {
		return fmt.Sprintf("goes the next way into the installer, or tries again (retry %d of %d); after the last gives up "+
			"with INSTALLER_SILENT", s.step.RetryCount+1, s.step.MaxRetries)
	}
	return "goes the next way into the installer if there is one, else gives up with INSTALLER_SILENT"
}

func (s *scene) nextGranted() (string, time.Time) {
	if s.exec != nil && !s.exec.Live && s.exec.Role == "installer" && !s.bootsNewSystem() &&
		s.spec.GetBmcEndpoint() != "" &&
		s.step.RetryCount < s.step.MaxRetries {
		return "switches the machine off and on through its BMC, and starts again from the installer",
			s.exec.SilentFrom().Add(operation.InstallerLost)
	}
	return "if no result comes by then, gives up: FAILED with OUTCOME_UNKNOWN, and the machine is fenced", s.cmd.Deadline
}

func (s *scene) nextUngranted() (string, time.Time) {
	code := "AGENT_UNAVAILABLE"
	limit := s.limit()
	if s.step.IsStage() {
		code = "STAGE_CHECK_FAILED"
	}
	if s.Op.WaitReason == operation.WaitSite {
		code = "SITE_AGENT_SILENT"
	}
	if s.cmd != nil && !s.cmd.Settled() {
		limit = s.cmd.Deadline
	}
	if s.exec != nil && !s.exec.Live && s.exec.Role == "host" && s.siteTrouble().Reason == "" && s.viaSite() {
		if at := s.exec.SilentFrom().Add(fleet.HandOverAfter); at.After(s.Now) {
			return "hands the step over to the agent of site " + s.SiteName(), at
		}
	}
	return "if no agent takes it by then, ends FAILED with " + code + "; nothing will have been started by this step",
		limit
}

// viaSite reports whether the site's agent could do the step instead of the machine's own.
func (s *scene) viaSite() bool {
	return kind.Of(s.step.Kind).UsesBMC || s.Provider() != fleet.AgentProvider
}

// stuck reports whether the current step runs far longer than its kind does, and nothing automatic will happen
// soon.
func (s *scene) stuck(next time.Time) bool {
	if s.step == nil || s.step.StartedAt.IsZero() {
		return false
	}
	return explain.Stuck(s.Now.Sub(s.step.StartedAt), s.Normal, s.Now, next)
}
