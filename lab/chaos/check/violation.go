package check

import "fmt"

// Violation is a promise that was broken.
type Violation struct {
	// Rule is one of the constants below.
	Rule string `json:"rule"`
	// Subject is the machine, operation or agent that it happened to.
	Subject string `json:"subject"`
	What    string `json:"what"`
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Subject, v.What) }

// The rules.
const (
	// RuleOnce: a command has at most one effect of a kind.
	RuleOnce = "effect-once"
	// RuleGrant: nothing touches a machine without a grant, before it, or after the result.
	RuleGrant = "granted-first"
	// RuleOverlap: attempts follow each other, and none follows a success or an unknown outcome.
	RuleOverlap = "no-overlap"
	// RuleAttempt: the work of a step is done by one attempt, unless its kind is declared repeatable.
	RuleAttempt = "one-attempt"
	// RuleNotDone: a command that is reported as not done has had no effect, unless a fence stood or later proof explains
	// it.
	RuleNotDone = "not-done"
	// RuleStranger: nothing acts but commands that the controller knows.
	RuleStranger = "known-commands"
	// RuleOneOperation: a machine runs one operation at a time.
	RuleOneOperation = "one-operation"
	// RuleEnds: every accepted operation and every command ends, and the system comes to rest.
	RuleEnds = "operations-end"
	// RuleFence: a machine names its unresolved command exactly while there is one.
	RuleFence = "fence"
	// RuleEvidence: a command that succeeded has had its effect exactly once, with the boot ids that the world saw. One
	// that is reported as never started had none.
	RuleEvidence = "evidence"
	// RuleAccepted: an operation in an answer to a client exists, once for each request id.
	RuleAccepted = "accepted-is-kept"
	// RuleEvents: a watcher gets every event of an operation once, in order, across broken streams.
	RuleEvents = "events"
	// RulePhases: phases only go forward.
	RulePhases = "phases"
	// RuleOwner: an epoch of an agent belongs to one session with one controller, and epochs grow.
	RuleOwner = "one-owner"
	// RuleCursor: a client that follows the reconcile cursor has in the end every machine as it is, and was never sent
	// back.
	RuleCursor = "cursor"
	// RuleLogs: the line that an agent writes before a reboot arrives once. It may be lost only with the agent's memory,
	// or for want of room, and then the agent logs the loss. A copy of the agent's memory may bring it once more.
	RuleLogs = "logs"
	// RuleAnswers: the answers of the API are those of a machine that takes one call after the other. Calls without an
	// answer may lie anywhere after they were made.
	RuleAnswers = "linearizable"
	// RuleCopies: of two processes with one identity on one machine one ends by itself, and two machines with one identity
	// end in quarantine.
	RuleCopies = "one-of-a-kind"
	// RuleTimes: the stored times of a run are of that run, whatever the wall clocks show, and nothing is refused as
	// expired before it is.
	RuleTimes = "true-times"
	// RuleWindow: nothing is begun later than 30 s after its grant, by the boot-time clock of its machine.
	RuleWindow = "grant-window"
	// RuleBudget: no more machines than a budget allows have a destructive command under way.
	RuleBudget = "budget"
	// RuleRollout: a rollout keeps its pace, its waves and its gate, and its sums are those of its operations.
	RuleRollout = "rollout"
	// RuleWebhooks: each event of an operation reaches a receiver at least once, under one id, rightly signed.
	RuleWebhooks = "webhooks"
	// RuleAudit: the check of the audit log finds nothing.
	RuleAudit = "audit-verifies"
)

// Rules are all of them.
var Rules = []string{
	RuleOnce, RuleGrant, RuleOverlap, RuleAttempt, RuleNotDone, RuleStranger, RuleOneOperation, RuleEnds, RuleFence,
	RuleEvidence, RuleAccepted, RuleEvents, RulePhases, RuleOwner, RuleCursor, RuleLogs, RuleAnswers, RuleCopies,
	RuleTimes, RuleWindow, RuleBudget, RuleRollout, RuleWebhooks, RuleAudit,
}
