//go:build planted

package planted

import (
	"fmt"
	"os"
)

// Variable names the one protection that this process lacks.
const Variable = "INGOT_PLANTED"

// names are all that can be taken away.
var names = map[string]bool{}

// Protections of order and against crashes.
var (
	// DedupCache: the agent does not know commands again that it has seen.
	DedupCache = lacks("dedup-cache")
	// IntentRecord: the agent starts a command without writing down that and what.
	IntentRecord = lacks("intent-record")
	// VersionGuard: the controller stores decisions over whatever others have stored since it read.
	VersionGuard = lacks("version-guard")
	// Grant: the agent starts commands without asking for a grant.
	Grant = lacks("grant")
	// StateID: the controller takes an agent that has lost its memory for the one that it knew.
	StateID = lacks("state-id")
)

// Protections of time.
var (
	// GrantWindow: the agent acts on a grant of any age.
	GrantWindow = lacks("grant-window")
	// WindowClock: the agent measures the age of a grant by its wall clock.
	WindowClock = lacks("window-clock")
	// ExpiryClock: the agent judges by its wall clock whether a command has expired.
	ExpiryClock = lacks("expiry-clock")
	// SharedTime: the controller stores times of its own wall clock, not of its database's.
	SharedTime = lacks("shared-time")
	// KnownTime: the agent checks certificates by its wall clock alone, whatever times it knows to have passed.
	KnownTime = lacks("known-time")
)

// Protections of identity and memory.
var (
	// MemoryNumbers: the controller does not compare the numbers of a memory with those that it has seen of it.
	MemoryNumbers = lacks("memory-numbers")
	// NewStateID: the agent goes on with a memory that the controller has proved to be an old copy.
	NewStateID = lacks("new-state-id")
	// OldEvents: the agent sends the events of a memory that it has given up without asking which are stored.
	OldEvents = lacks("old-events")
	// EventNumber: the controller stores an event again whose number it has seen.
	EventNumber = lacks("event-number")
	// Superseded: the agent comes back after a newer process has taken its identity over.
	Superseded = lacks("superseded")
	// CloneHardware: the controller does not notice that two machines use one identity.
	CloneHardware = lacks("clone-hardware")
)

// Protections of evidence.
var (
	// BootHardware: the controller takes the boot of another machine that uses the identity for one of the machine.
	BootHardware = lacks("boot-hardware")
	// BootClaim: the controller believes an agent's claim that its machine was rebooted.
	BootClaim = lacks("boot-claim")
	// LateClaim: the controller lifts a fence because an agent claims, in the same boot as before, to have rebooted its
	// machine.
	LateClaim = lacks("late-claim")
	// AskedBoot: the controller does not compare the boot that an agent asks from with the boot of its session.
	AskedBoot = lacks("asked-boot")
	// UngrantedResult: the controller believes that a command has succeeded which it has never granted.
	UngrantedResult = lacks("ungranted-result")
	// ForeignResult: the controller takes the result of a command from an agent that it was not given to.
	ForeignResult = lacks("foreign-result")
	// EmptyEvidence: the controller takes a success without what was to be read back.
	EmptyEvidence = lacks("empty-evidence")
	// Fence: the controller does not fence a machine whose command may have acted.
	Fence = lacks("fence")
)

// Protections of the moment from which a window counts.
var (
	// GrantReceipt: the agent counts the window of a grant from its receipt, not from the ask.
	GrantReceipt = lacks("grant-receipt")
	// GrantStart: the agent counts the window of a grant from the moment at which it is about to start.
	GrantStart = lacks("grant-start")
)

// Protections of an unknown outcome: without them it is called FAILED.
var (
	// RolledBackFails: an agent whose memory was rolled back calls its open commands failed.
	RolledBackFails = lacks("rolled-back-fails")
	// RolledBackStops: the controller calls a granted command failed whose agent's memory was rolled back.
	RolledBackStops = lacks("rolled-back-stops")
	// MemoryLostFails: the controller calls a granted command failed whose agent has lost its memory.
	MemoryLostFails = lacks("memory-lost-fails")
	// ResumeFails: the agent calls a command failed that a restart has interrupted, and does not read the world.
	ResumeFails = lacks("resume-fails")
	// DeadlineFails: the controller calls a granted command failed that has no result by its deadline.
	DeadlineFails = lacks("deadline-fails")
	// UnknownRetried: the controller tries a step again whose outcome is unknown.
	UnknownRetried = lacks("unknown-retried")
)

// Protections of failed writes: without them they count as written.
var (
	// BatchWritten: the agent takes a batch of writes for written that its disk has refused.
	BatchWritten = lacks("batch-written")
	// BatchShared: the agent takes writes for written whose shared transaction was lost.
	BatchShared = lacks("batch-shared")
	// EventUnstored: the controller acknowledges an event that its database has refused.
	EventUnstored = lacks("event-unstored")
)

// Protections of feeds: the bound by the oldest open transaction.
var (
	// MachineFeed: the feed of changed machines has no bound.
	MachineFeed = lacks("machine-feed")
	// EventFeed: the feed of operation events has no bound.
	EventFeed = lacks("event-feed")
	// WebhookFeed: the feed of events for webhooks has no bound.
	WebhookFeed = lacks("webhook-feed")
)

// Bound returns the part of a statement that bounds a feed by the snapshot; nothing where that is taken away.
func Bound(gone bool, sql string) string {
	if gone {
		return ""
	}
	return sql
}

func init() {
	if name := os.Getenv(Variable); name != "" && !names[name] {
		panic(fmt.Sprintf("%s=%s: there is no such bug", Variable, name))
	}
}

func lacks(name string) bool {
	names[name] = true
	return os.Getenv(Variable) == name
}
