package rules

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// overdue is how late an evaluation may be before it counts as missing.
const overdue = 15 * time.Second

// activeRules are for work that is under way.
var activeRules = []rule{
	// a cancel waits for the executor's answer.
	{"cancelling", past | present | record, func(s *scene) bool { return !s.Op.CancelRequested.IsZero() },
		(*scene).cancelling},
	// no controller has evaluated it at its time.
	{"nobody-looks", past | present | record, (*scene).notEvaluated, (*scene).sayNotEvaluated},
	// the fleet is frozen, and the step needs a grant.
	{"frozen", past | present | record, func(s *scene) bool { return s.Freeze.Active() && s.needsGrant() },
		(*scene).frozen},
	// the machine was quarantined before the grant.
	{"quarantined-under-way", past | record,
		func(s *scene) bool { return s.status.GetNodeState() == quarantinedState && s.needsGrant() }, (*scene).quarantined},
	// the machine was flagged before the grant.
	{"blocked-under-way", past | present | record, func(s *scene) bool { return s.blocked() && s.needsGrant() },
		(*scene).sayBlocked},
	// a budget has no slot for work that destroys data.
	{"budget", past | record, waits(operation.WaitBudget), (*scene).waitBudget},
	// an attempt has failed, and the next one has its time; the cause is that of the attempt.
	{"retry", past | present | record, waits(operation.WaitRetry), (*scene).retry},
	// an installer that reports by itself has the machine; its next report is awaited.
	{"reported-install", past | record, (*scene).reported, (*scene).sayReported},
	// the machine's hardware is being replaced.
	{"replacement", past | record, (*scene).replaced, (*scene).sayReplaced},
	// the site's agent has not applied what the machine must boot.
	{"site", past | present | record, waits(operation.WaitSite), (*scene).waitSite},
	// the machine was sent into the installer, which has not reported.
	{"installer", past | present | record, waits(operation.WaitInstaller), (*scene).waitInstaller},
	// the executor claims success, and there is no proof yet.
	{"evidence", past | present | record, waits(operation.WaitEvidence), (*scene).waitEvidence},
	// the installer has restarted the machine into the system that it wrote, which has not reported.
	{"booting", past | present | record,
		func(s *scene) bool { return s.granted() && s.bootsNewSystem() }, (*scene).booting},
	// the executor has a grant, and is silent.
	{"granted-and-silent", past | present | record, func(s *scene) bool {
		return s.granted() && s.exec != nil && !s.exec.Live &&
			!s.leavesOnPurpose()
	}, (*scene).grantedSilent},
	// the executor has a grant, and is connected.
	{"executing", past | present | record, (*scene).granted, (*scene).executing},
	// the machine has no agent, and no agent of its site can reach it; the operation fails after 30 s.
	{"nobody", past | present | record, waits(operation.WaitNobody), (*scene).waitNobody},
	// no agent that may execute the step is connected.
	{"agent", past | present | record, waits(operation.WaitAgent), (*scene).waitAgent},
	// the agent that has the command is not connected.
	{"executor-gone", past | present | record,
		func(s *scene) bool { return s.open() && s.exec != nil && !s.exec.Live }, (*scene).waitAgent},
	// a user at the machine has locked its agent.
	{"executor-locked", past | present | record,
		func(s *scene) bool { return s.open() && s.exec != nil && s.exec.Locked }, (*scene).locked},
	// the agent is connected, and has not acknowledged the command.
	{"not-acknowledged", past | present | record,
		func(s *scene) bool { return s.open() && s.cmd.State == operation.Sent },
		(*scene).notAcknowledged},
	// the agent has the command, and has not asked for a grant.
	{"grant", past | present | record, (*scene).open, (*scene).waitGrant},
	// it was asked for more than 15 s ago, and no controller has begun.
	{"not-started", past | present | record,
		func(s *scene) bool { return s.Op.Phase == operation.Pending && s.Now.Sub(s.Op.CreatedAt) > overdue },
		(*scene).notStarted},
	// a controller is about to begin.
	{"pending", past | record, func(s *scene) bool { return s.Op.Phase == operation.Pending }, (*scene).pending},
	// a controller is about to go on with the next step.
	{"between-steps", past, func(*scene) bool { return true }, (*scene).pending},
}

func waits(reason string) func(*scene) bool {
	return func(s *scene) bool { return s.Op.WaitReason == reason }
}

// needsGrant reports whether the operation cannot go on without a new grant.
func (s *scene) needsGrant() bool {
	return s.step != nil && (kind.Of(s.step.Kind).Control == kind.Commanded || s.step.IsStage()) && !s.granted()
}

func (s *scene) blocked() bool { return s.Holds(fleet.RMA) || s.Holds(fleet.RetiredFlag) }

func (s *scene) cancelling(e *explain.Explanation) {
	e.WaitsOn, e.Since = explain.OnAgent, s.Op.CancelRequested
	e.Cause = explain.Cause{Reason: "CANCELED_BY_REQUEST", Text: "it was cancelled " + s.Ago(s.Op.CancelRequested) +
		s.cancelledBy()}
	if s.cmd != nil {
		s.waitsForExecutor(e)
		e.Cause.Text += ", and the executor has not answered yet"
		e.Cause.Facts = s.CommandFacts(s.cmd)
	}
	if s.blocked() {
		e.Cause.Facts = append(e.Cause.Facts, "the machine is blocked: nothing more is started on it")
	}
}

func (s *scene) waitBudget(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnLimit, s.Op.Slots(), s.Op.CreatedAt
	e.Cause = explain.Cause{Text: cmp.Or(s.Budget, "a slot is free, and the operation is about to take it")}
	e.Next, e.NextAt = "it begins when there is room, after those that were asked for before it", s.BudgetUntil
	e.Actions = []explain.Action{{Command: "ingot budget slots",
		Consequence: "shows which machines hold slots; those of operations that failed wait for an operator"}}
	for _, id := range s.LeftBehind {
		e.Actions = append(e.Actions, explain.Action{
			Command:     "ingot budget release " + id,
			Consequence: "gives back the slot of a machine that was left behind, once you have looked at it", Destructive: true,
		})
	}
	if s.BudgetName != "" {
		e.Actions = append(e.Actions, explain.Action{Command: "ingot budget set " + s.BudgetName + " " + s.BudgetRaise,
			Consequence: "makes room for one more machine in this budget, for everybody", Destructive: true})
	}
}

func (s *scene) notEvaluated() bool { return !s.Op.WakeAt.IsZero() && s.Now.Sub(s.Op.WakeAt) > overdue }

func (s *scene) sayNotEvaluated(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnLimit, "a controller", s.Op.WakeAt
	e.Cause = explain.Cause{Text: "a controller should have looked at it " + s.Ago(s.Op.WakeAt) + ", and none has"}
	e.Cause.Text += ": " + s.idleControllers()
	if s.Controllers == 0 {
		e.Cause.Reason = "CONTROLLER_LEASE_LOST"
	}
	e.Next, e.NextAt = "a controller goes on with it as soon as one works", time.Time{}
	e.Actions = []explain.Action{{Command: "ingot server info",
		Consequence: "shows the controller that answers; its log and /readyz say why it does no work"}}
	if s.Freeze.Active() {
		e.Cause.Facts = append(e.Cause.Facts, s.Freeze.Reason()+": "+s.frozenSince())
	}
	e.Actions = append(e.Actions, whileFrozen(s)...)
}

// idleControllers returns the present state of controllers that do no work.
func (s *scene) idleControllers() string {
	if s.Controllers == 0 {
		return "no controller holds its lease in the database"
	}
	return "the controllers' workers fail, are stopped or overloaded"
}

func (s *scene) frozen(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "an admin who lifts the freeze", s.Freeze.Since
	e.Cause = explain.Cause{
		Reason: s.Freeze.Reason(),
		Text:   s.frozenSince() + "; the controller grants no start",
		Facts:  s.CommandFacts(s.cmd),
	}
	e.Actions = []explain.Action{s.Thaw()}
	if s.active {
		s.refusedNext(e)
	}
}

func (s *scene) sayBlocked(e *explain.Explanation) {
	flag := fleet.RMA
	if s.Holds(fleet.RetiredFlag) {
		flag = fleet.RetiredFlag
	}
	c := s.Condition(flag)
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "an admin", explain.When(c.GetLastTransition())
	e.Cause = explain.Cause{Reason: "MACHINE_BLOCKED", Text: "the machine is flagged " + string(flag) +
		": nothing is started on it"}
	if w, ok := s.Override("SET_FLAG", func(w explain.Override) bool {
		return w.Data["flag"] == string(flag) &&
			w.Data["value"] == "true"
	}); ok {
		e.Cause.Text = "the machine is flagged " + string(flag) + w.By() + "; nothing is started on it"
	}
	if c.GetMessage() != "" {
		e.Cause.Facts = []string{c.GetMessage()}
	}
	if flag == fleet.RetiredFlag && node.Gone(s.status.GetNodeState()) {
		e.Cause.Text = "the node is " + s.nodeState() + ": nothing is started on it"
		if w, ok := s.retiredBy(); ok {
			e.Cause.Text = "the node was moved to " + s.nodeState() + w.By() + "; nothing is started on it"
		}
		e.Actions = s.transitions()
	} else {
		e.Actions = []explain.Action{explain.Unflag(s.ID(), string(flag))}
	}
	if flag == fleet.RMA {
		e.Actions = append(e.Actions, explain.Action{Command: "ingot rma " + s.ID() + " --return",
			Consequence: "takes the flag off as the end of the return"}.Starting(explain.StartReturn))
	}
	if s.active {
		s.refusedNext(e)
	}
}

// retiredBy finds who moved the node out of service. Where something was under way, the comment is that of the request.
func (s *scene) retiredBy() (explain.Override, bool) {
	w, ok := s.Override("NODE_TRANSITION", func(w explain.Override) bool { return w.Data["node_state"] == s.nodeState() })
	if asked, before := s.Override("NODE_RETIRING", nil); before && w.Comment == "" {
		return asked, true
	}
	return w, ok
}

// retry: the last attempt failed, and the next one has a time.
func (s *scene) retry(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnLimit, "the pause before the next attempt"
	e.Since = s.step.StartedAt
	text := s.step.Message
	var v verdict
	if s.cmd != nil {
		e.Since = explain.Latest(s.cmd.FinishedAt, s.cmd.GrantedAt)
		if s.silentInstaller() {
			v = s.bootFailure()
		} else {
			v = s.failure(cmp.Or(s.cmd.Reason, "EXECUTION_FAILED"), cmp.Or(s.cmd.Message, text))
		}
	}
	e.Cause = v.Cause
	e.Cause.Text = fmt.Sprintf("attempt %d failed: %s", s.step.RetryCount, cmp.Or(v.Text, text))
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
	e.Actions = v.actions
	if s.cmd != nil && s.silentInstaller() {
		s.addNow(e, "INSTALLER_SILENT")
	}
}

// silentInstaller reports whether the machine was sent into the installer by the last command, and did not report.
func (s *scene) silentInstaller() bool {
	return s.entering() && s.cmd.State == operation.Done && s.cmd.Outcome == operation.OutcomeSucceeded
}

// waitEvidence: the executor reports that it is done, and the world has not confirmed it.
func (s *scene) waitEvidence(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnAgent, "another boot of the machine", s.Op.StartedAt
	e.Cause = explain.Cause{Reason: "EVIDENCE_MISSING",
		Text: "the reboot was done as its executor says, and the machine's agent has not come back with another boot id"}
	if s.cmd != nil {
		e.Since = s.cmd.ClaimedAt
	}
	if s.Op.WritesAgentless() {
		e.WaitsFor = "the phone-home of the machine's new system, which has no agent"
		e.Cause.Text = "the machine was started, and its new system has not phoned home"
	}
	if s.throughBMC() {
		e.Cause.Text = "the BMC has accepted the power cycle, and the machine's agent has not come back with another boot id"
	}
	switch {
	case s.status.GetPowerState() == "off" && s.throughBMC():
		e.WaitsOn, e.WaitsFor = explain.OnBMC, s.bmc()
		e.Cause.Reason = "BMC_NO_EFFECT"
		e.Cause.Text += "; the BMC still says that the machine is off"
	case s.host != nil && s.host.Live && s.cmd != nil && s.host.BootID == s.cmd.BootIDBefore:
		e.Cause.Text += "; the agent is connected, and still shows the boot of before"
	case s.host != nil && !s.host.Live:
		e.Cause.Text += ": it " + s.Seen(s.host)
		e.Cause.Facts = append(e.Cause.Facts,
			"a boot that takes longer than usual hangs in firmware, in the boot loader, or has no network")
	}
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
	e.Actions = []explain.Action{s.Console()}
}

// bootsNewSystem reports whether the installer is gone because it has restarted the machine: it does not come back.
func (s *scene) bootsNewSystem() bool {
	return kind.Of(s.cmd.Kind).ProvenByBoot && s.exec != nil && s.exec.Role == "installer" && !s.exec.Live
}

// booting: what a machine does between the installer and the first word of its new system.
func (s *scene) booting(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnAgent, "the agent of the machine's new system", s.cmd.GrantedAt
	e.Cause.Text = "the machine was restarted, and its new system has not reported for " + explain.Span(s.Now.Sub(e.Since))
	e.Cause.Facts = append(s.CommandFacts(s.cmd),
		"a first boot may take minutes: the firmware's tests, and what the image does once")
	if s.Op.WritesAgentless() {
		e.WaitsFor = "the phone-home of the machine's new system, which has no agent"
		e.Cause.Text = "the machine was restarted, and its new system has not phoned home for " + explain.Span(
			s.Now.Sub(e.Since),
		)
		e.Cause.Facts = append(e.Cause.Facts, "cloud-init does it at the end of the first boot")
	}
	e.Actions = []explain.Action{s.Console()}
}

// leavesOnPurpose reports whether the command itself silences its executor for a while.
func (s *scene) leavesOnPurpose() bool {
	return kind.Of(s.cmd.Kind).Restarts && s.cmd.ExecutorRole != "site" &&
		fleet.Silence(s.exec.SilentFrom(), s.Now) < s.bootTime()
}

// bootTime is how long a machine may be away because it boots.
func (s *scene) bootTime() time.Duration { return max(90*time.Second, 2*s.Normal.P95) }

func (s *scene) grantedSilent(e *explain.Explanation) {
	s.waitsForExecutor(e)
	e.Since = s.exec.LastSeen
	v := s.silence(s.exec)
	e.Cause = v.Cause
	e.Cause.Text = fmt.Sprintf("%s %s was granted the start of %s at %s and %s: whether the command still acts is unknown",
		s.exec.RoleName(), s.exec.AgentID, s.cmd.ID, s.At(s.cmd.GrantedAt), s.Seen(s.exec))
	if more := strings.TrimPrefix(v.Text, s.exec.RoleName()+" "+s.exec.AgentID+" "+s.Seen(s.exec)); more != "" {
		e.Cause.Text += "; " + strings.TrimPrefix(more, ": ")
	}
	if e.Cause.Reason == "AGENT_UNAVAILABLE" {
		e.Cause.Reason = "OUTCOME_UNKNOWN"
	}
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
	e.Actions = v.actions
}

// executing: leave was given and the executor is there.
func (s *scene) executing(e *explain.Explanation) {
	s.waitsForExecutor(e)
	e.Since = s.cmd.GrantedAt
	e.Cause.Text = s.verb() + ", for " + explain.Span(s.Now.Sub(s.cmd.GrantedAt))
	if s.Progress.Message != "" || s.Progress.Percent > 0 {
		e.Cause.Text += fmt.Sprintf(", %d%%", s.Progress.Percent)
		if s.Progress.Message != "" {
			e.Cause.Text += " (" + s.Progress.Message + ")"
		}
	}
	if c := s.Condition(fleet.BMCReachable); s.throughBMC() && c != nil && !c.GetStatus() && c.GetKnown() {
		e.Cause.Reason = c.GetReason()
		e.Cause.Text += "; the BMC is in trouble: " + c.GetMessage()
		e.Actions = s.failure(c.GetReason(), c.GetMessage()).actions
	}
	if p := s.status.GetProvider(); s.throughProvider() && s.providerTrouble() {
		e.Cause.Reason = p.GetReason()
		e.Cause.Text += "; " + s.Provider() + " is in trouble: " + p.GetMessage()
		e.Actions = s.failure(p.GetReason(), p.GetMessage()).actions
	}
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
}

// verb describes what the current command's executor does.
func (s *scene) verb() string {
	if s.throughProvider() {
		return "the provider is doing " + cmp.Or(s.step.Mode, "it")
	}
	return cmp.Or(kind.Of(s.cmd.Kind).Doing, "the command is being executed")
}

func (s *scene) locked(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "the person who locked agent "+s.exec.AgentID, s.cmd.SentAt
	e.Cause = explain.Cause{Reason: "AGENT_LOCKED", Text: s.exec.RoleName() + " " + s.exec.AgentID +
		" is locked at the machine itself, and refuses commands", Facts: s.CommandFacts(s.cmd)}
	e.Actions = []explain.Action{explain.Unlock()}
}

func (s *scene) notAcknowledged(e *explain.Explanation) {
	s.waitsForExecutor(e)
	e.Since = s.cmd.SentAt
	e.Cause = explain.Cause{
		Text: "command " + s.cmd.ID + " was sent " + s.Ago(s.cmd.SentAt) +
			", and no acknowledgement of it has arrived; it is sent again every 30 s",
		Facts: s.CommandFacts(s.cmd),
	}
	if s.Now.Sub(s.cmd.SentAt) > operation.LookAgain {
		e.Cause.Reason = "AGENT_UNAVAILABLE"
		e.Cause.Facts = append(e.Cause.Facts,
			"an agent that is connected and acknowledges nothing may hang, or its disk may be full")
		e.Actions = []explain.Action{explain.Doctor()}
	}
}

func (s *scene) waitGrant(e *explain.Explanation) {
	s.waitsForExecutor(e)
	e.Since = explain.Latest(s.cmd.AckedAt, s.cmd.SentAt)
	e.Cause = explain.Cause{
		Text: "the agent holds command " + s.cmd.ID +
			", and no request for its grant has arrived: it may be busy with another command, or unable to write " +
			"its memory",
		Facts: s.CommandFacts(s.cmd),
	}
	if s.Now.Sub(e.Since) > operation.LookAgain {
		e.Cause.Reason = "AGENT_UNAVAILABLE"
		e.Actions = []explain.Action{explain.Doctor()}
	}
}

func (s *scene) pending(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnNobody, "a controller", s.Op.CreatedAt
	e.Cause.Text = "it was asked for " + s.Ago(s.Op.CreatedAt) + ", and a controller is about to go on with it"
}

// notStarted: due operations are evaluated, and this one is not begun.
func (s *scene) notStarted(e *explain.Explanation) {
	s.sayNotEvaluated(e)
	e.Since = s.Op.CreatedAt
	e.Cause.Text = "it was asked for " + s.Ago(s.Op.CreatedAt) + ", and no controller has begun with it"
	e.Cause.Text += ": " + s.idleControllers()
}

// waitsForExecutor names the executor of the current command as whom the machine waits for.
func (s *scene) waitsForExecutor(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnAgent, "agent "+s.cmd.ExecutorID
	switch {
	case s.throughBMC():
		e.WaitsOn, e.WaitsFor = explain.OnBMC, s.bmc()
	case s.overSSH():
		e.WaitsFor = "a script on the machine, over SSH to " + cmp.Or(s.spec.GetSshEndpoint(), "no endpoint")
	case s.inCluster():
		e.WaitsOn, e.WaitsFor = explain.OnProvider, s.cluster()
	case s.cmd.ExecutorRole == "site":
		e.WaitsOn, e.WaitsFor = explain.OnProvider, "provider "+s.Provider()
	case s.cmd.ExecutorRole == "installer":
		e.WaitsFor = "the installer, agent " + s.cmd.ExecutorID
	}
	if s.exec != nil && !s.exec.Live && s.cmd.ExecutorRole == "site" {
		e.WaitsOn, e.WaitsFor = explain.OnAgent, "the agent of site "+s.SiteName()
	}
}

func (s *scene) bmc() string {
	if b := s.spec.GetBmcEndpoint(); b != "" {
		return "the BMC at " + b
	}
	return "the machine's BMC"
}
