//go:build planted

package planted

import (
	"fmt"
	"os"
)

// Variable names the one protection that this process lacks.
const Variable = "INGOT_PLANTED"

// What is taken away.
var (
	// DedupCache: the agent does not know commands again that it has seen.
	DedupCache = lacks("dedup-cache")
	// IntentRecord: the agent starts a command without writing down that and what.
	IntentRecord = lacks("intent-record")
	// VersionGuard: the controller stores decisions over whatever others have stored since it read.
	VersionGuard = lacks("version-guard")
	// Grant: the agent starts commands without asking for leave.
	Grant = lacks("grant")
	// StateID: the controller takes an agent that has lost its memory for the one that it knew.
	StateID = lacks("state-id")
)

func init() {
	switch os.Getenv(Variable) {
	case "", "dedup-cache", "intent-record", "version-guard", "grant", "state-id":
	default:
		panic(fmt.Sprintf("%s=%s: there is no such bug", Variable, os.Getenv(Variable)))
	}
}

func lacks(name string) bool { return os.Getenv(Variable) == name }
