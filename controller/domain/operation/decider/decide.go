package decider

import (
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/planted"
)

// Decide answers one event. It changes nothing in the snapshot.
func Decide(s operation.Snapshot, e operation.Event, now time.Time) operation.Decision {
	d := newDraft(&s, now)
	defer d.free()
	d.ask(about(e))
	return d.decision(&s.Op)
}

// Instant ends a pending operation at once, with what it has recorded for evidence. It is for operations that change a
// record and do no work: their one step is done in the transaction that creates them.
func Instant(op operation.Operation, evidence map[string]string, now time.Time) operation.Decision {
	d := newDraft(&operation.Snapshot{Op: op}, now)
	defer d.free()
	d.ask(func(s Situation) verdict {
		v := does(begins{}, noted{"started", ""}, stepBegins{}, stepSucceeds{withIdentity(s, evidence)})
		v.then = closeOperation
		return v
	})
	return d.decision(&op)
}

// about returns the question that an event asks.
func about(e operation.Event) question {
	switch e := e.(type) {
	case operation.Evaluate:
		return evaluate
	case operation.Due:
		return evaluateIfDue
	case operation.AckedByAgent:
		return func(s Situation) verdict { return acked(s, e) }
	case operation.GrantAsked:
		return func(s Situation) verdict { return grantAsked(s, e) }
	case operation.Resulted:
		return func(s Situation) verdict { return resulted(s, e) }
	case operation.SessionOpened:
		return func(s Situation) verdict { return sessionOpened(s, e) }
	case operation.CancelAsked:
		return func(s Situation) verdict { return cancelAsked(s, e) }
	case operation.Reported:
		return func(s Situation) verdict { return reported(s, e) }
	case operation.Impostor:
		return func(s Situation) verdict { return does(told(s, "identity_refused", e.Reason+": "+e.Message)...) }
	case operation.PowerSeen:
		return func(s Situation) verdict { return powerSeen(s, e) }
	case operation.Quarantine:
		return func(s Situation) verdict { return stop(s, e.Reason, e.Message) }
	}
	return nil
}

// told notes for the operation's watchers what others do, as long as the operation goes on.
func told(s Situation, kind, text string) []move {
	if text == "" || s.Op.Phase != operation.Pending && s.Op.Phase != operation.Running {
		return nil
	}
	return []move{noted{kind, text}}
}

// powerSeen notes a change of the machine's power that no command of the operation explains.
func powerSeen(s Situation, e operation.PowerSeen) verdict {
	op := *s.Op
	text := operation.PowerByOthers(&op, s.Command, e)
	if text == "" {
		return verdict{}
	}
	return does(told(s, operation.NoteOthers, text)...).after(proves{op.Evidence})
}

// evaluate begins or continues whatever is due.
func evaluate(s Situation) verdict {
	switch {
	case s.Op.Phase == operation.Pending && s.LacksSlot:
		// Freeing a slot wakes the operation.
		return does(waits{operation.WaitBudget, s.Now.Add(operation.LookAgain)})
	case s.Op.Phase == operation.Pending:
		return verdict{moves: []move{begins{}, noted{"started", ""}}, then: advance}
	case s.Op.Phase == operation.Running:
		return evaluateRunning(s)
	}
	return verdict{}
}

func evaluateIfDue(s Situation) verdict {
	if s.Now.Add(operation.ClockSlack).Before(s.Op.WakeAt) {
		return verdict{}
	}
	return evaluate(s)
}

func evaluateRunning(s Situation) verdict {
	switch {
	case s.Settled || !s.OfStep:
		return advance(s)
	case s.Granted:
		return evaluateGranted(s)
	case s.Past(s.Command.Deadline) && s.CommandKind.Ungranted:
		return preflightExpired()
	case s.Past(s.Command.Deadline):
		return fails("AGENT_UNAVAILABLE",
			"the start of the command was not granted before the step's deadline; nothing was started", true).
			after(commandEnds{state: operation.Expired})
	case shouldHandOver(s):
		return replaceCommand("handed over: the executor is silent and was never granted the command")
	}
	// The controller that committed SENT may have failed before the command left. The agent knows it by its id if it has
	// it.
	return waitForTaker(s).after(replies{resend: s.Command.State == operation.Sent && s.World.ExecutorLive})
}

// waitForTaker waits for the executor to ask for its grant.
func waitForTaker(s Situation) verdict {
	reason := operation.WaitResult
	if !s.World.ExecutorLive {
		reason = operation.WaitAgent
	}
	return does(waits{reason, s.SoonOr(s.Command.Deadline)})
}

// evaluateGranted confirms, ends or waits for a command that may be acting.
func evaluateGranted(s Situation) verdict {
	switch {
	case s.RebootSeen() && (s.Claimed || s.Due() || s.ByInstaller):
		return confirmReboot(s, "new_boot")
	case s.Boots != "" && !s.Entering && (s.Claimed || s.Due()) && !s.Strayed().None():
		return cameBack(s, s.Strayed())
	}
	if v, ended := evaluateGrantedBoot(s); ended {
		return v
	}
	switch {
	case s.Canceling && s.Due():
		return unknown(s, "OUTCOME_UNKNOWN", "the executor did not answer the cancel in time; the command may still act")
	case s.Past(s.Command.Deadline) && s.AwaitsPhoneHome():
		return noPhoneHome(s)
	case s.Past(s.Command.Deadline) && s.Claimed:
		return unknown(s, "EVIDENCE_MISSING", "the executor says that it is done, and the machine shows no new boot")
	case s.Past(s.Command.Deadline) && planted.DeadlineFails:
		return calledFailed("COMMAND_EXPIRED", "no result came before the deadline")
	case s.Past(s.Command.Deadline):
		return unknown(s, "OUTCOME_UNKNOWN",
			"the command was granted and no result came before the deadline; it may have acted")
	}
	return does(waits{s.Op.WaitReason, nextEvaluation(s)})
}

// nextEvaluation returns the time of the next evaluation of a granted command: its end, or earlier where silence shows
// something.
func nextEvaluation(s Situation) time.Time {
	if s.StepKind.NeedsInstaller && !s.BySite {
		return s.SoonOr(s.GivenUpAt())
	}
	return s.GivenUpAt()
}

// Account returns the account of a decision for a log, in one line: each situation of which a question was asked, and
// the moves of its verdict. It decides once more, so that Decide costs no more where nothing is logged.
func Account(s operation.Snapshot, e operation.Event, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%T", e)
	d := newDraft(&s, now)
	defer d.free()
	d.seen = func(s Situation, v verdict) {
		fmt.Fprintf(&b, "; %v:", s)
		for _, m := range v.moves {
			fmt.Fprintf(&b, " %s%+v", strings.TrimPrefix(fmt.Sprintf("%T", m), "decider."), m)
		}
	}
	d.ask(about(e))
	return b.String()
}
