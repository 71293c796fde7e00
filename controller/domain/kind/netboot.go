package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Netboot sets the device of the next boot.
const Netboot Kind = "netboot"

var netboot = Declaration{
	Kind:          Netboot,
	Step:          true,
	Runs:          true,
	Action:        "netboot",
	Missing:       "NETBOOT_UNSUPPORTED",
	Harm:          Interrupts,
	Timeout:       60 * time.Second,
	Retries:       2,
	UsesBMC:       true,
	SwitchesPower: true,
	Evidence:      evidence.BootNext,
	Started:       "Setting netboot",
	Done:          "Netboot configured",
	Doing:         "the next boot is being set",
}
