package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

const quarantinedState = baremetalv1.NodeState_NODE_STATE_QUARANTINED

// restRules are for machines on which nothing is under way.
var restRules = []rule{
	// the machine is deleted.
	{"deleted", past, func(s *scene) bool { return s.Machine.GetDeletedAt() != nil }, (*scene).deleted},
	// the node is quarantined.
	{"quarantined", past | record,
		func(s *scene) bool { return s.inQuarantine() && (!s.heldByWorkflow() || s.quarantinedApart()) },
		(*scene).quarantined},
	// the outcome of a command is unknown.
	{"fenced", past | record, (*scene).fenced, (*scene).sayFenced},
	// the machine is flagged RMA or Retired.
	{"blocked", past | present | record, (*scene).blocked, (*scene).sayBlocked},
	// a workflow holds it.
	{"workflow", past | record, (*scene).heldByWorkflow, (*scene).sayWorkflow},
	// three installations have failed.
	{"install-failed", past | record, (*scene).spent, (*scene).installFailed},
	// the last operation has failed.
	{"failed", past | present | record, (*scene).lastFailed, (*scene).sayFailed},
	// the condition NeedsIntervention is set.
	{"intervention", past | record,
		func(s *scene) bool { return s.Holds(fleet.NeedsIntervention) }, (*scene).sayIntervention},
	// its agent has a session, and the health checks of a node on its way in do not pass.
	{"health-checks", past | present | record, (*scene).unhealthy, (*scene).sayUnhealthy},
	// the node's state stands for work without a worker; a controller will move it.
	{"unowned", past | record, (*scene).unowned, (*scene).sayUnowned},
	// the fleet is frozen.
	{"frozen-fleet", past | present | record, func(s *scene) bool { return s.Freeze.Active() }, (*scene).frozenAtRest},
	// the provider's state does not fit the node's state.
	{"provider-drift", past | present | record,
		func(s *scene) bool { return s.Holds(fleet.ProviderDrift) }, (*scene).sayProviderDrift},
	// the agent of the machine's site is silent, and nothing else observes the machine.
	{"not-observed", past | present | record, (*scene).NotObserved, (*scene).ExplainSilence},
	// the agent of a machine in service is silent.
	{"agent-silent", past | present | record, (*scene).hostSilent, (*scene).sayHostSilent},
	// a machine that was installed without an agent does not answer its site's probe.
	{
		"probe-silent", past | present | record,
		func(s *scene) bool { return s.status.GetAgentless() && !s.Holds(fleet.Reachable) },
		(*scene).sayProbeSilent,
	},
	// the condition Degraded is set.
	{"drift", past | present | record,
		holds(fleet.Degraded), saysThat(fleet.Degraded, "the machine is degraded: ", "")},
	// the condition of its BMC reports it.
	{"bmc-trouble", past | present | record, (*scene).bmcTrouble, (*scene).sayBMCTrouble},
	// the BMC reports that a part of the hardware is not well.
	{"hardware-fault", past | present | record, holds(fleet.HardwareFault),
		saysThat(fleet.HardwareFault, "", "the BMC is read every ten minutes")},
	// a software RAID of its system lacks a disk.
	{"raid-degraded", past | present | record, holds(fleet.RAIDDegraded),
		saysThat(fleet.RAIDDegraded, "", "its agent looks every minute")},
	// the provider could not be asked.
	{"provider-trouble", past | present | record, (*scene).providerTrouble, (*scene).sayProviderTrouble},
	// in service, and something is missing; `attention_reason` names it.
	{"unusable", past | present | record,
		func(s *scene) bool { return s.unusable() && !s.lifeWaits() }, (*scene).sayUnusable},
	// its last operation was canceled.
	{"canceled", past | record, (*scene).wasCanceled, (*scene).sayCanceled},
	// no agent has ever enrolled for it.
	{"never-enrolled", past | record, func(s *scene) bool {
		return s.host == nil && !s.status.GetAgentless() && s.spec.GetBmcEndpoint() == "" &&
			s.Provider() == fleet.AgentProvider
	}, (*scene).sayNeverEnrolled},
	// its turn in a rollout has not come.
	{"rollout", record, (*scene).waitsInRollout, (*scene).sayRollout},
	// its node state waits for an operator.
	{"life", past | record, (*scene).lifeWaits, (*scene).sayLife},
	// the phase is FACTORY_READY.
	{"new", past | record,
		func(s *scene) bool { return s.status.GetPhase() == baremetalv1.MachineStatus_FACTORY_READY }, (*scene).isNew},
	// the phase is MAINTENANCE.
	{"maintenance", past | record,
		func(s *scene) bool { return s.status.GetPhase() == baremetalv1.MachineStatus_MAINTENANCE }, (*scene).inMaintenance},
	// nothing else fits.
	{"idle", past, func(*scene) bool { return true }, (*scene).idle},
}

// heldByWorkflow reports whether a workflow that has not ended holds the machine. A cleanup that failed leaves the node
// in quarantine, and the workflow names the failure and the next step.
func (s *scene) heldByWorkflow() bool { return s.Workflow != nil && workflow.Holds(s.Workflow.State) }

// endedRules are for an operation that has ended, and was asked for by its id.
var endedRules = []rule{
	// the outcome of its command is unknown.
	{"fenced", past | record,
		func(s *scene) bool { return s.fenced() && s.UnresolvedOp == s.Op.ID }, (*scene).sayFenced},
	// it has failed.
	{"failed", past | present | record,
		func(s *scene) bool { return s.Op.Phase == operation.Failed }, (*scene).sayFailed},
	// it was canceled.
	{"canceled", past | record, func(s *scene) bool { return s.Op.Phase == operation.Canceled }, (*scene).sayCanceled},
	// nothing else fits.
	{"succeeded", past | record, func(*scene) bool { return true }, (*scene).succeeded},
}

// nodeState is the node's state as it is stored: "active", "install_failed".
func (s *scene) nodeState() string {
	return strings.ToLower(strings.TrimPrefix(s.status.GetNodeState().String(), "NODE_STATE_"))
}

func (s *scene) deleted(e *explain.Explanation) {
	e.Since = explain.When(s.Machine.GetDeletedAt())
	e.Cause = explain.Cause{Reason: "MACHINE_DELETED", Text: "the machine was deleted " + s.Ago(e.Since) +
		"; its identity does not come back"}
	e.Actions = []explain.Action{{Command: "ingot machine register NEW-ID …",
		Consequence: "registers the hardware as a new machine"}}
}

func (s *scene) quarantined(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "an operator who finds out why"
	e.Since = explain.When(s.status.GetNodeStateChangedAt())
	e.Cause = explain.Cause{Reason: "MACHINE_QUARANTINED", Text: "the machine is quarantined: nothing is started on it"}
	if s.heldByWorkflow() {
		e.Cause.Facts = append(e.Cause.Facts, fmt.Sprintf("%s is %s at stage %s, too", s.workflowName(), s.Workflow.State,
			s.Workflow.Stage))
	}
	if c := s.Condition(fleet.NeedsIntervention); c.GetStatus() && c.GetReason() != "" {
		v := s.failure(c.GetReason(), c.GetMessage())
		e.Cause, e.Cause.Facts = v.Cause, append(e.Cause.Facts, v.Facts...)
		e.Cause.Text = "the machine is quarantined: " + e.Cause.Text
		if w, ok := s.quarantineWord(); ok && c.GetReason() == "MACHINE_QUARANTINED" {
			e.Cause.Text = "the machine was quarantined" + w.By()
		}
		e.Actions = v.actions
	}
	if w, ok := s.Override("WORKFLOW_CANCEL", func(w explain.Override) bool { return !w.At.Before(e.Since) }); ok {
		e.Cause.Facts = append(e.Cause.Facts, "workflow "+w.Data["workflow_id"]+" was cancelled"+w.By())
	}
	if s.fenced() {
		e.Cause.Facts = append(e.Cause.Facts, "command "+s.Unresolved.ID+" was granted before, and its outcome is not known")
		e.Actions = append(e.Actions, s.Settle()...)
	}
	e.Actions = append(append(e.Actions, s.endQuarantine()...), s.transitions()...)
}

func (s *scene) inQuarantine() bool { return s.status.GetNodeState() == quarantinedState }

// quarantinedApart reports whether a node is quarantined for something else than what its workflow has left: an admin's
// word, or other hardware that uses its identity.
func (s *scene) quarantinedApart() bool {
	if _, ok := s.quarantineWord(); ok {
		return true
	}
	return slices.ContainsFunc(s.Causes, func(c explain.MachineCause) bool {
		return c.Cause == fleet.CauseQuarantine && (c.Reason == "CLONE_DETECTED" || c.Reason == "ENROLMENT_CONTESTED")
	})
}

// quarantineWord finds by whom the node was quarantined, if it was a person.
func (s *scene) quarantineWord() (explain.Override, bool) {
	since := explain.When(s.status.GetNodeStateChangedAt())
	return s.Override(
		"NODE_STATE",
		func(w explain.Override) bool { return w.Data["to"] == "quarantined" && !w.At.Before(since) },
	)
}

// endQuarantine is how the node leaves quarantine: back to where it rested, or, where that stood for work, out of
// service.
func (s *scene) endQuarantine() []explain.Action {
	if s.Offers.Clears {
		a := s.Clear()
		a.Consequence, a.Destructive = "ends the quarantine; mend the cause first", true
		switch s.Condition(fleet.NeedsIntervention).GetReason() {
		case "CLONE_DETECTED", "AGENT_STATE_ROLLED_BACK":
			a.Consequence = "ends the quarantine; wipe /var/lib/ingot of the copy first, and enrol it anew"
		}
		return []explain.Action{a}
	}
	if slices.Contains(s.Offers.Moves, node.Retired) {
		return []explain.Action{{Command: "ingot node transition " + s.ID() + " retired",
			Consequence: "takes it out of service; nothing is erased", Destructive: true}}
	}
	return nil
}

func (s *scene) fenced() bool { return s.Unresolved != nil }

// sayFenced: a granted command ended without a result.
func (s *scene) sayFenced(e *explain.Explanation) {
	c := s.Unresolved
	exec := s.Agent(c.ExecutorID)
	e.OperationID, e.WaitsOn, e.WaitsFor = s.UnresolvedOp, explain.OnOperator, "an operator who settles command "+c.ID
	e.Since = explain.Latest(c.FinishedAt, c.GrantedAt)
	e.Cause.Reason = cmp.Or(c.Reason, "OUTCOME_UNKNOWN")
	if _, known := remedies[e.Cause.Reason]; !known || c.Reason == "EXECUTION_FAILED" {
		e.Cause.Reason = "OUTCOME_UNKNOWN"
	}
	what := fmt.Sprintf("the start of command %s (%s) was granted at %s", c.ID, c.Kind, s.At(c.GrantedAt))
	if c.GrantedAt.IsZero() {
		const none = "this database has no grant for command %s (%s), and its executor reports that it acted"
		what = fmt.Sprintf(none, c.ID, c.Kind)
	}
	e.Cause.Text = what + ", and its outcome is UNKNOWN: " + s.whyUnknown(c, exec)
	e.Cause.Facts = []string{"it may have acted, and may still act; other work is refused with COMMAND_UNRESOLVED"}
	if operation.Repeatable(c) {
		e.Cause.Facts[0] = "it has ended, and may be asked for again; other work is refused with COMMAND_UNRESOLVED"
	}
	if c.Message != "" {
		e.Cause.Facts = append(e.Cause.Facts, c.Message)
	}
	if s.Freeze.Active() {
		e.Cause.Facts = append(e.Cause.Facts, s.Freeze.Reason()+": "+s.frozenSince())
	}
	e.Next = "settles by itself when a late result comes" + provenBy(c)
	e.Actions = s.Settle()
	if s.spec.GetBmcEndpoint() != "" && c.ExecutorRole != "site" {
		e.Actions = append(e.Actions, explain.Action{
			Command:     "switch the machine off",
			Consequence: "once its BMC says so, nothing can act any more, and the fence lifts by itself", Destructive: true,
		})
	}
	e.Actions = append(e.Actions, explain.Action{Command: "ingot commands --machine " + s.ID(),
		Consequence: "shows how far each command got"})
	e.Actions = append(e.Actions, whileFrozen(s)...)
}

// whyUnknown returns why the result did not come.
func (s *scene) whyUnknown(c *operation.Command, exec *explain.Agent) string {
	switch {
	case c.GrantedAt.IsZero() && s.Freeze.WentBack:
		return "the database has gone back, and may have lost the grant that the controller gave"
	case c.GrantedAt.IsZero():
		return "only the controller grants a start, so no report of this executor can be relied on"
	case c.Reason == "EVIDENCE_MISSING" || !c.ClaimedAt.IsZero():
		return "its executor says that it is done, and the machine has shown no new boot"
	case c.Reason == "CLONE_DETECTED", c.Reason == "AGENT_STATE_ROLLED_BACK", c.Reason == "PHONE_HOME_MISSING":
		return remedies[c.Reason].text
	case exec != nil && exec.LastSeen.Before(c.FinishedAt):
		return exec.RoleName() + " " + exec.AgentID + " " + s.Seen(exec)
	case exec != nil && exec.StateID != c.ExecutorStateID && c.ExecutorStateID != "":
		return exec.RoleName() + " " + exec.AgentID + " has come back with another memory, and knows nothing of it"
	}
	return "no result has come before its deadline"
}

// provenBy names the evidence that would settle an unknown command besides its result.
func provenBy(c *operation.Command) string {
	text := ""
	if kind.Of(c.Kind).ProvenByBoot || c.ExecutorRole == "installer" {
		text = ", or the machine shows another boot"
	}
	if c.ExecutorRole != "site" {
		text += ", or its BMC says that it is off"
	}
	return text
}

// lastFailed reports whether the failure of the last operation, or the late result of its command, is why the machine
// needs a person.
func (s *scene) lastFailed() bool {
	if s.Op == nil || s.Op.Phase != operation.Failed || s.Op.Error == nil || !s.Holds(fleet.NeedsIntervention) {
		return false
	}
	code, _, _ := s.sinceThen(s.Op.Error.Code, s.Op.Error.Message)
	return s.Condition(fleet.NeedsIntervention).GetReason() == code
}

func (s *scene) sayFailed(e *explain.Explanation) {
	op := s.Op
	e.OperationID, e.Step, e.Since = op.ID, op.CurrentStage, op.FinishedAt
	if s.step != nil {
		e.StepKind, e.StepStarted = string(s.step.Kind), s.step.StartedAt
	}
	failed := operation.Error{Code: "EXECUTION_FAILED"}
	if op.Error != nil {
		failed = *op.Error
	}
	code, message, late := s.sinceThen(failed.Code, failed.Message)
	s.failure(code, message).into(e)
	s.addNow(e, code)
	if late != "" {
		e.Cause.Facts = append(e.Cause.Facts, late)
	}
	if e.WaitsOn != explain.OnOperator {
		// Nothing goes on by itself, wherever the cause lies.
		e.Cause.Facts = append(e.Cause.Facts, "the cause lies with "+e.WaitsFor)
		e.WaitsOn, e.WaitsFor = explain.OnOperator, "an operator"
	}
	if n := s.tries(code); n > 1 {
		e.Cause.Facts = append(e.Cause.Facts, fmt.Sprintf("it was tried %d times", n))
	}
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
	e.Summary = fmt.Sprintf("%s failed at step %s, %s: %s", op.Type, op.CurrentStage, s.Ago(op.FinishedAt), e.Cause.Text+
		inBrackets(message, e.Cause.Text))
	if s.Holds(fleet.NeedsIntervention) {
		s.cures(e)
		e.Actions = append(e.Actions, s.Clear())
	}
}

// sinceThen returns the present code and message of a failure: the result of a command whose outcome counted as unknown
// may have come late. late states that.
func (s *scene) sinceThen(code, message string) (newCode, newMessage, late string) {
	if code != "OUTCOME_UNKNOWN" || s.fenced() || s.cmd == nil {
		return code, message, ""
	}
	late = "the result of command " + s.cmd.ID + " came after its time was up, and counted as unknown until then"
	switch s.cmd.Outcome {
	case operation.OutcomeSucceeded:
		return code, "its result has come since: it has succeeded", late
	case operation.OutcomeFailed, operation.OutcomeRefused:
		return cmp.Or(s.cmd.Reason, "EXECUTION_FAILED"), s.cmd.Message, late
	}
	return code, message, ""
}

// inBrackets returns an executor's message in brackets, if it is short and adds information.
func inBrackets(message, text string) string {
	const short = 160
	if message == "" || len(message) > short || strings.Contains(message, "\n") || strings.Contains(text, message) {
		return ""
	}
	return " (" + message + ")"
}

// sayIntervention: an operator must look, and not because of the last operation.
func (s *scene) sayIntervention(e *explain.Explanation) {
	s.sayCondition(e, fleet.NeedsIntervention, "")
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "an operator"
	s.cures(e)
	e.Actions = append(e.Actions, s.Clear())
	e.Summary = "needs intervention, " + s.Ago(e.Since) + ": " + e.Cause.Text
}

func (s *scene) installFailed(e *explain.Explanation) {
	s.failure("INSTALL_ATTEMPTS_EXHAUSTED", "").into(e)
	e.Since = explain.When(s.status.GetNodeStateChangedAt())
	if _, m := s.exhaustedBy(); m != "" {
		e.Cause.Text += "; the last one said: " + m
	}
	if s.lastFailed() {
		e.OperationID, e.Step = s.Op.ID, s.Op.CurrentStage
		facts := append(e.Cause.Facts, s.failure(s.Op.Error.Code, s.Op.Error.Message).Text)
		e.Cause.Facts = append(facts, s.CommandFacts(s.cmd)...)
	}
}

func (s *scene) frozenAtRest(e *explain.Explanation) {
	s.frozen(e)
	e.Cause.Text = "nothing is under way, and nothing can be started: " + e.Cause.Text
}

func (s *scene) hostSilent() bool {
	return s.host != nil && !s.host.Live && s.status.GetAgentId() == s.host.AgentID
}

func (s *scene) sayHostSilent(e *explain.Explanation) {
	s.silence(s.host).into(e)
	e.Since = s.host.LastSeen
	e.Summary = "nothing is under way; " + e.Cause.Text
	e.Next = "the machine counts as reachable again as soon as its agent connects"
}

func (s *scene) sayProbeSilent(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "an answer of the machine"
	e.Since = explain.When(s.Condition(fleet.Reachable).GetLastTransition())
	e.Cause = explain.Cause{Reason: fleet.AttentionUnreachable,
		Text:  "the machine was installed without an agent, and does not answer the probe of its site's agent",
		Facts: []string{"it is asked at the address that it leases, or at " + cmp.Or(s.status.GetProbedAddress(), "none")}}
	e.Actions = []explain.Action{s.SiteGet()}
	if s.spec.GetBmcEndpoint() != "" {
		e.Actions = append(e.Actions, explain.Action{Command: "ingot reboot " + s.ID(),
			Consequence: "switches it off and on through its BMC, and waits for its answer"})
	}
	e.Summary = "nothing is under way; " + e.Cause.Text
	e.Next = "it is asked again every 30 s"
}

// sayCondition explains a condition that has a reason.
func (s *scene) sayCondition(e *explain.Explanation, t fleet.ConditionType, so string) {
	c := s.Condition(t)
	s.failure(c.GetReason(), c.GetMessage()).into(e)
	e.Since = explain.When(c.GetLastTransition())
	e.Summary = "nothing is under way; " + so + e.Cause.Text
}

func holds(t fleet.ConditionType) func(*scene) bool { return func(s *scene) bool { return s.Holds(t) } }

// saysThat explains a condition that has a reason, and what comes next.
func saysThat(t fleet.ConditionType, so, next string) func(*scene, *explain.Explanation) {
	return func(s *scene, e *explain.Explanation) { s.sayCondition(e, t, so); e.Next = next }
}

func (s *scene) bmcTrouble() bool {
	c := s.Condition(fleet.BMCReachable)
	return c != nil && !c.GetStatus() && c.GetKnown() && s.spec.GetBmcEndpoint() != ""
}

func (s *scene) sayBMCTrouble(e *explain.Explanation) {
	s.sayCondition(e, fleet.BMCReachable, "the machine cannot be switched from outside: ")
	if e.Cause.Reason == "BMC_UNREACHABLE" {
		e.Next = "the BMC is asked again by the site's agent, less and less often"
	}
}

func (s *scene) wasCanceled() bool {
	return s.Op != nil && s.Op.Phase == operation.Canceled && s.Holds(fleet.OperationCanceled)
}

func (s *scene) sayCanceled(e *explain.Explanation) {
	e.OperationID, e.Step, e.Since = s.Op.ID, s.Op.CurrentStage, s.Op.FinishedAt
	e.Cause = explain.Cause{Reason: "CANCELED_BY_REQUEST", Text: fmt.Sprintf("%s was cancelled at step %s, %s", s.Op.Type,
		s.Op.CurrentStage, s.Ago(s.Op.FinishedAt)) + s.cancelledBy()}
	if s.Op.Error != nil {
		e.Cause.Facts = []string{s.Op.Error.Message}
	}
	e.Cause.Facts = append(e.Cause.Facts, s.CommandFacts(s.cmd)...)
}

func (s *scene) succeeded(e *explain.Explanation) {
	e.OperationID, e.Step, e.Since = s.Op.ID, s.Op.CurrentStage, s.Op.FinishedAt
	e.Summary = fmt.Sprintf("%s has succeeded, %s", s.Op.Type, s.Ago(s.Op.FinishedAt))
}

func (s *scene) sayNeverEnrolled(e *explain.Explanation) {
	s.neverEnrolled().into(e)
	e.Since = explain.When(s.Machine.GetCreatedAt())
	e.Cause.Text = "nothing is under way: " + e.Cause.Text + ", and it has no BMC"
	e.Actions = append(e.Actions, s.GiveBMC())
}

func (s *scene) isNew(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "an operator who takes it into service"
	e.Since = explain.When(s.Machine.GetCreatedAt())
	e.Summary = "the machine is registered, and was never taken into service"
}

func (s *scene) inMaintenance(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor = explain.OnOperator, "the operator who took it out of service"
	if s.Op != nil {
		e.Since = s.Op.FinishedAt
	}
	e.Summary = "the machine is in maintenance, and nothing is under way"
}

func (s *scene) idle(e *explain.Explanation) {
	e.Summary = "the machine is in service, and nothing is under way"
	e.Since = explain.When(s.Machine.GetUpdatedAt())
	if s.Op != nil && !s.Op.FinishedAt.IsZero() {
		e.Since = s.Op.FinishedAt
	}
}

func (s *scene) frozenSince() string {
	return "the fleet is frozen since " + s.At(s.Freeze.Since) + ", because " + s.Freeze.Cause()
}

// lacksCommand reports whether the step's last attempt has no command: the newest one is of the attempt before.
func (s *scene) lacksCommand() bool {
	return s.step != nil && s.step.RetryCount > 0 && s.cmd != nil && !s.cmd.FinishedAt.IsZero() &&
		s.cmd.FinishedAt.Before(s.step.RetryAt)
}

// tries returns how many attempts of a failed step had a command.
func (s *scene) tries(code string) int {
	switch {
	case s.step == nil:
		return 0
	case code == "AGENT_UNAVAILABLE" && s.lacksCommand():
		return s.step.RetryCount
	}
	return s.step.RetryCount + 1
}
