package kind

import (
	"cmp"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Netboot sets the device of the next boot.
const Netboot Kind = "netboot"

var netboot = Declaration{
	Kind:   Netboot,
	Step:   true,
	Runs:   true,
	Action: "netboot",
	Mode:   "mode",
	Modes:  []string{"PXE", "HTTP", "DISK"},
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		s.GetNetboot().Mode = cmp.Or(s.GetNetboot().GetMode(), in.NetbootMode, "PXE")
		return nil
	},
	Missing:       "NETBOOT_UNSUPPORTED",
	Harm:          Interrupts,
	Timeout:       60 * time.Second,
	Retries:       2,
	UsesBMC:       true,
	SwitchesPower: true,
	SetsNextBoot:  true,
	Evidence:      evidence.BootNext,
	Started:       "Setting netboot",
	Done:          "Netboot configured",
	Doing:         "the next boot is being set",
}
