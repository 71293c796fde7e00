package kind

import (
	"cmp"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Reboot restarts a machine, and is proven by its boot id.
const Reboot Kind = "reboot"

var reboot = Declaration{
	Kind:   Reboot,
	Step:   true,
	Runs:   true,
	Action: "reboot",
	Mode:   "mode",
	Modes:  []string{"graceful", "force", "bmc"},
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		s.GetReboot().Mode = cmp.Or(s.GetReboot().GetMode(), in.RebootMode, "graceful")
		return nil
	},
	Harm:          Interrupts,
	Timeout:       300 * time.Second,
	Retries:       2,
	UsesBMC:       true,
	SwitchesPower: true,
	Restarts:      true,
	Unstoppable:   true,
	ProvenByBoot:  true,
	Path:          PathBootNext,
	Started:       "Rebooting machine",
	Done:          "Reboot complete",
	Doing:         "the machine is being rebooted",
	Entered:       "rebooted into the network",
}
