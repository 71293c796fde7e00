package decider

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/planted"
)

// Ends of steps, of commands and of the operation, and the causes for a person that they leave or take away.

// stepDone ends the current step well, and goes on with the next, or ends the operation.
func stepDone(s Situation, proof map[string]string) verdict {
	return verdict{moves: []move{stepSucceeds{withIdentity(s, proof)}}, then: advance}
}

// closeOperation ends an operation whose current step has succeeded: nothing follows that step.
func closeOperation(s Situation) verdict {
	switch {
	case s.Step.State != operation.StepSucceeded:
		return verdict{}
	case s.Op.CurrentStep == len(s.Op.Steps)-1:
		return succeeds(s)
	}
	return canceled(s, "canceled between two steps")
}

// succeeds ends the operation well, with the conditions that its evidence shows.
func succeeds(s Situation) verdict {
	m := operation.MachineChange{Happened: proven(s.Op), Conditions: reachedBySite(s, "")}
	is := func(t fleet.ConditionType, status bool, reason, message string) {
		m.Conditions = append(m.Conditions, condition(t, status, reason, message))
	}
	is(fleet.OperationCanceled, false, "OperationSucceeded", "")
	if s.Op.Type == fleet.ExitMaintenance {
		is(fleet.Drained, false, "ExitMaintenance", "")
	}
	if digest := s.Op.Evidence[evidence.ImageDigest]; digest != "" {
		m.ImageDigest = digest
		is(fleet.Provisioned, true, "ImageVerified", digest)
		if s.Op.Evidence[evidence.NodeReadyAt] == "" {
			is(fleet.InCustomerCluster, false, "Reimaged", "")
		}
	}
	if s.Op.Evidence[evidence.PhonedHomeAt] != "" {
		is(fleet.Reachable, true, "PhonedHome", "")
		m.ProbeAddress = s.Op.Evidence[evidence.PhonedHomeFrom]
	}
	if deployed := s.Op.Evidence[evidence.Deployed]; deployed != "" {
		is(fleet.Provisioned, true, "Provider", deployed)
	}
	if s.Op.Evidence[evidence.Redeployed] != "" {
		is(fleet.InCustomerCluster, false, "Redeployed", "")
	}
	moves := append([]move{changesMachine(m)}, settleRepeated(s)...)
	return finish(s, operation.Succeeded, nil, "succeeded", "").after(moves...)
}

// canceled ends the operation because a cancel was asked for.
func canceled(s Situation, message string) verdict {
	const code = "CANCELED_BY_REQUEST"
	var moves []move
	if s.Step.State == operation.StepRunning {
		moves = append(moves, stepFails{message})
	}
	moves = append(moves, conditions(condition(fleet.OperationCanceled, true, code, "")))
	return finish(s, operation.Canceled, &operation.Error{Code: code, Message: message}, "canceled", message).
		after(moves...)
}

// finish ends the operation, and takes back what it let the machine boot. A network boot that was asked for stays until
// it happens.
func finish(s Situation, p operation.Phase, err *operation.Error, note, message string) verdict {
	end := finishes{p, err, note, message}
	b := &s.World.Boot
	if b.OperationID != s.Op.ID || b.Mode == operation.BootDisk || b.Mode == "" ||
		p == operation.Succeeded && b.Mode == operation.BootRescue {
		return does(end)
	}
	return does(end, assigns{operation.BootDisk})
}

// failure is the reason of a step that fails.
type failure struct {
	code, message string
	retryable     bool
}

// fails ends the current step and the operation.
func fails(code, message string, retryable bool) verdict {
	return verdict{then: failure{code, message, retryable}.end}
}

func (f failure) end(s Situation) verdict {
	f = f.onTheWayBack(s)
	e := &operation.Error{Code: f.code, Message: f.message, Retryable: f.retryable, Details: details(s)}
	attempt := endAttempt(s, e)
	moves := []move{stepFails{f.message}, entersStage{}, noted{"step_failed", f.message}}
	if s.Op.Phase == operation.Pending {
		moves = append(moves, begins{})
	}
	moves = append(moves, replies{attemptFailed: attempt},
		changesMachine{Raise: raised(s, e), Conditions: reachedBySite(s, e.Code)})
	return finish(s, operation.Failed, e, "failed", e.Message).after(moves...)
}

// onTheWayBack replaces a failure on the way out of the installer by the reason for which the machine was sent back.
func (f failure) onTheWayBack(s Situation) failure {
	refused := s.Step.Evidence[evidence.Refused]
	if !s.TurnedBack || f.code == refused {
		return f
	}
	return failure{refused, fmt.Sprintf("%s; nothing was written. On the way back: %s",
		s.Step.Evidence[evidence.RefusedWhy], f.message), s.Step.Evidence[evidence.RefusedAgain] == "true"}
}

func details(s Situation) map[string]string {
	out := map[string]string{"step": s.Step.Name, "machine_id": s.Op.MachineID}
	if s.OfStep {
		out["command_id"] = s.Command.ID
		out["executor"] = s.Command.ExecutorID
	}
	return out
}

// unknown ends the operation over a granted command that may have acted, and fences the machine.
func unknown(s Situation, code, message string) verdict {
	if reason := s.CommandKind.Unfinished; reason != "" {
		return unfinished(s, reason, message)
	}
	if planted.UnknownRetried && s.Step.RetryCount == 0 {
		return retries(s, message).after(commandEnds{state: operation.Done, outcome: operation.OutcomeFailed})
	}
	moves := []move{commandEnds{
		state: operation.Unknown, outcome: operation.OutcomeUnknown, reason: cmp.Or(s.Command.Reason, code),
	}}
	moves = append(moves, settleRepeated(s)...)
	if !planted.Fence {
		moves = append(moves, changesMachine{Fence: s.Command.ID})
	}
	return fails(code, message, false).after(moves...)
}

// unfinished ends a test that has no result. Whatever came of it, nothing was changed.
func unfinished(s Situation, reason, why string) verdict {
	end := commandEnds{state: operation.Done, outcome: operation.OutcomeFailed, reason: reason, message: why}
	if s.Canceling {
		return canceled(s, "canceled by request; the test, which changes nothing, may run on for its time").after(end)
	}
	return fails(reason, "the tests have no result, and have changed nothing: "+why, true).after(end)
}

// calledFailed ends a granted command as failed that may have acted. Only planted bugs do that.
func calledFailed(code, message string) verdict {
	return fails(code, message, false).after(commandEnds{state: operation.Done, outcome: operation.OutcomeFailed})
}

// stop ends the operation because the machine must not be acted upon.
func stop(s Situation, reason, message string) verdict {
	switch {
	case s.Over:
		return verdict{}
	case s.Granted && planted.RolledBackStops:
		return calledFailed(reason, message)
	case s.Granted:
		return unknown(s, reason, message)
	}
	return fails(reason, message, false).after(drops(s, message)...)
}

// drops cancels a command that was never granted. The executor is notified, so that it forgets it early.
func drops(s Situation, why string) []move {
	if s.Settled {
		return nil
	}
	return []move{replies{cancelOnAgent: s.Command.ID}, commandEnds{state: operation.CommandCanceled, message: why}}
}

// cancelAsked stops what can be stopped.
func cancelAsked(s Situation, e operation.CancelAsked) verdict {
	switch {
	case s.Over:
		return does(refuses("OPERATION_FINISHED", "the operation is already "+string(s.Op.Phase)))
	case e.Why == "" && tooLate(s):
		return does(refuses("CANCEL_TOO_LATE",
			"the machine is restarting or being switched, which nothing can stop any more; the operation goes on to its end"))
	case s.Granted && s.Canceling:
		return does(replies{cancelOnAgent: s.Command.ID})
	case s.Granted:
		until := operation.Earliest(s.Command.Deadline, s.Now.Add(operation.CancelPatience))
		return does(replies{cancelOnAgent: s.Command.ID}, cancelBegins{}, noted{"cancel_requested", e.By()},
			waits{operation.WaitCancelling, until})
	}
	return canceled(s, "canceled "+e.By()).after(drops(s, "canceled by request")...)
}

// tooLate reports whether a client's cancel could change nothing: the last step has been allowed to do what no executor
// takes back. Where steps follow, those are cancelled.
func tooLate(s Situation) bool {
	return s.Granted && !s.Canceling && s.Op.CurrentStep == len(s.Op.Steps)-1 && s.CommandKind.Unstoppable
}

// raised returns what the failure of the operation leaves for a person: the unknown outcome of its command, or else the
// cause that failed operations of its type leave.
func raised(s Situation, e *operation.Error) *operation.RaisedCause {
	r := &operation.RaisedCause{
		Cause: fleet.CauseOf(s.Op.Type), Subject: subject(s.Op), Reason: e.Code, Message: e.Message,
	}
	if s.Command != nil && s.Command.State == operation.Unknown {
		r.Cause, r.Subject = fleet.CauseUnknown, s.Command.ID
	}
	return r
}

// unreached are the reasons of a site's agent that has not reached a machine. Work that failed for another reason, or
// whose outcome is unknown, shows nothing of that.
var unreached = []string{"BMC_UNREACHABLE", "SSH_UNREACHABLE"}

// reachedBySite returns the condition Reachable of a machine that has no agent of its own: the work of its site's agent
// is the only probe of it. An empty code is a success.
func reachedBySite(s Situation, code string) []operation.ConditionChange {
	if s.World.TargetAgentID != "" || fleet.Housekeeping(s.Op.Type) || !s.BySite ||
		code != "" && !slices.Contains(unreached, code) {
		return nil
	}
	return []operation.ConditionChange{condition(fleet.Reachable, code == "", cmp.Or(code, "SiteAgent"), "")}
}

// settleRepeated settles the command of an earlier operation of which this one is the repeat.
func settleRepeated(s Situation) []move {
	id := s.World.Machine.UnresolvedCommand
	if id == "" || fleet.Housekeeping(s.Op.Type) {
		return nil
	}
	return []move{changesMachine{Unfence: id, Repeated: id, Happened: settled(id)}}
}

// settled returns the event that the command's outcome is known now.
func settled(commandID string) fleet.Happened {
	return fleet.Happened{Cures: []fleet.Cure{fleet.CuredBySettlement}, Subject: commandID}
}

// subject tells failed plans apart: another plan that succeeds proves nothing about the one that failed.
func subject(op *operation.Operation) string {
	if fleet.CauseOf(op.Type) == fleet.CausePlan {
		return op.PlanID
	}
	return ""
}

// proven returns what the success of an operation proves. Operations that only change the record prove nothing.
func proven(op *operation.Operation) fleet.Happened {
	if fleet.Housekeeping(op.Type) {
		return fleet.Happened{}
	}
	h := fleet.Happened{
		Cures: []fleet.Cure{fleet.CuredBySame, fleet.CuredByWork}, Same: fleet.CauseOf(op.Type), Subject: subject(op),
	}
	for _, p := range []struct {
		cure  fleet.Cure
		shown bool
	}{
		{fleet.CuredByImage, op.Evidence[evidence.ImageDigest] != "" || op.Evidence[evidence.Deployed] != ""},
		{fleet.CuredByBoot, op.Evidence[evidence.BootIDAfter] != "" ||
			op.Evidence[evidence.PhonedHomeAt] != "" || op.Evidence[evidence.ProbeAnsweredAt] != ""},
		{fleet.CuredByJoin, op.Evidence[evidence.NodeReadyAt] != ""},
	} {
		if p.shown {
			h.Cures = append(h.Cures, p.cure)
		}
	}
	return h
}

// providerDestroys are the actions of a provider that destroy the data on the system disk.
var providerDestroys = []string{"deploy", "recover_deploy", "release", "erase"}

// destroysSystem reports whether a granted command of the step destroys data on the machine's system disk. An erasure
// counts whatever disks its rule names: which of them held the system is not known here.
func destroysSystem(s Situation) bool {
	return s.CommandKind.DestroysSystem ||
		s.CommandKind.Route == kind.ThroughProvider && slices.Contains(providerDestroys, s.Step.Mode)
}
