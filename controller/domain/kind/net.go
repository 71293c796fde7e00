package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Net changes the configuration of a running host.
const Net Kind = "net"

var net = Declaration{
	Kind:       Net,
	Step:       true,
	Runs:       true,
	Action:     "reconfig",
	Capability: "reconfig",
	Harm:       Harmless,
	Timeout:    120 * time.Second,
	AsksHost:   true,
	Evidence:   evidence.ConfigDigest,
	Started:    "Reconfiguring host",
	Done:       "Host reconfigured",
	Doing:      "the configuration is being applied",
}
