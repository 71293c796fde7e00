//go:build !planted

package planted

// What is taken away; see the other build for what each does.
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
)
