package kind

import (
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Net changes the configuration of a running host.
const Net Kind = "net"

var net = Declaration{
	Kind:   Net,
	Step:   true,
	Runs:   true,
	Action: "reconfig",
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		if proto.Size(s.GetNet()) == 0 && in.Config != nil {
			proto.Merge(s.GetNet(), in.Config)
		}
		return nil
	},
	Capability: "reconfig",
	Harm:       Harmless,
	Timeout:    120 * time.Second,
	AsksHost:   true,
	Numbered:   true,
	Evidence:   evidence.ConfigDigest,
	Started:    "Reconfiguring host",
	Done:       "Host reconfigured",
	Doing:      "the configuration is being applied",
}
