//go:build !planted

package planted

// The protections that can be removed; see the other build for each.
const (
	DedupCache   = false
	IntentRecord = false
	VersionGuard = false
	Grant        = false
	StateID      = false

	GrantWindow = false
	WindowClock = false
	ExpiryClock = false
	SharedTime  = false
	KnownTime   = false

	MemoryNumbers = false
	NewStateID    = false
	OldEvents     = false
	EventNumber   = false
	Superseded    = false
	CloneHardware = false

	BootHardware    = false
	BootClaim       = false
	LateClaim       = false
	AskedBoot       = false
	UngrantedResult = false
	ForeignResult   = false
	EmptyEvidence   = false
	Fence           = false

	GrantReceipt = false
	GrantStart   = false

	RolledBackFails = false
	RolledBackStops = false
	MemoryLostFails = false
	ResumeFails     = false
	DeadlineFails   = false
	UnknownRetried  = false

	BatchWritten  = false
	BatchShared   = false
	EventUnstored = false

	MachineFeed = false
	EventFeed   = false
	WebhookFeed = false
)

// Bound returns the part of a statement that bounds a feed by the snapshot.
func Bound(_ bool, sql string) string { return sql }
