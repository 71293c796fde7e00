package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// ResetDevices resets the machine's accelerators.
const ResetDevices Kind = "reset_devices"

var resetDevices = Declaration{
	Kind:             ResetDevices,
	Step:             true,
	Runs:             true,
	Action:           "reset_devices",
	Harm:             Destroys,
	Timeout:          300 * time.Second,
	Retries:          1,
	AsksHost:         true,
	PrefersInstaller: true,
	Evidence:         evidence.DevicesReset,
	Started:          "Resetting accelerators",
	Done:             "Accelerators reset",
}
