package kind

import (
	"time"
)

// Reboot restarts a machine, and is proven by its boot id.
const Reboot Kind = "reboot"

var reboot = Declaration{
	Kind:          Reboot,
	Step:          true,
	Runs:          true,
	Action:        "reboot",
	Harm:          Interrupts,
	Timeout:       300 * time.Second,
	Retries:       2,
	UsesBMC:       true,
	SwitchesPower: true,
	Restarts:      true,
	Unstoppable:   true,
	ProvenByBoot:  true,
	Started:       "Rebooting machine",
	Done:          "Reboot complete",
	Doing:         "the machine is being rebooted",
	Entered:       "rebooted into the network",
}
