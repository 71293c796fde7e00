//go:build !planted

package planted

// What is taken away; see the other build for what each does.
const (
	DedupCache   = false
	IntentRecord = false
	VersionGuard = false
	Grant        = false
	StateID      = false
)
