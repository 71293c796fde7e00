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
	// RuleStranger: nothing acts but commands that the controller knows.
	RuleStranger = "known-commands"
	// RuleOneOperation: a machine has one active operation at a time.
	RuleOneOperation = "one-operation"
	// RuleEnds: every accepted operation and every command ends.
	RuleEnds = "operations-end"
	// RuleFence: a machine names its unresolved command exactly while there is one.
	RuleFence = "fence"
	// RuleEvidence: what succeeded has had its effect exactly once, and shows it.
	RuleEvidence = "evidence"
	// RuleAccepted: an operation that a client was told of exists, once for each request id.
	RuleAccepted = "accepted-is-kept"
	// RuleEvents: a watcher gets every event of an operation once, in order.
	RuleEvents = "events"
	// RulePhases: phases only go forward.
	RulePhases = "phases"
	// RuleOwner: an epoch of an agent's session belongs to one controller, and epochs grow.
	RuleOwner = "one-owner"
	// RuleCursor: the reconcile cursor misses no change.
	RuleCursor = "cursor"
	// RuleLogs: an agent's log lines arrive once.
	RuleLogs = "logs"
	// RuleAnswers: the answers of the API are those of a machine that takes one call after the other.
	RuleAnswers = "linearizable"
	// RuleCopies: two processes or machines with one identity do not go on side by side.
	RuleCopies = "one-of-a-kind"
	// RuleTimes: times are true, whatever the wall clocks of controllers and agents show.
	RuleTimes = "true-times"
	// RuleWindow: nothing is begun on a grant that is over, by the boot-time clock of the machine.
	RuleWindow = "grant-window"
)

// Rules are all of them.
var Rules = []string{
	RuleOnce, RuleGrant, RuleOverlap, RuleStranger, RuleOneOperation, RuleEnds, RuleFence, RuleEvidence, RuleAccepted,
	RuleEvents, RulePhases, RuleOwner, RuleCursor, RuleLogs, RuleAnswers, RuleCopies, RuleTimes, RuleWindow,
}
