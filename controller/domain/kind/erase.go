package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Erase erases disks, from the installer.
const Erase Kind = "erase"

var erase = Declaration{
	Kind:           Erase,
	Step:           true,
	Runs:           true,
	Action:         "erase",
	Harm:           Destroys,
	Timeout:        24 * time.Hour, // a large disk takes longer than any other step
	NeedsInstaller: true,
	DestroysSystem: true,
	Evidence:       evidence.EraseMethod,
	Started:        "Erasing disks",
	Done:           "Disks erased",
	Doing:          "disks are being erased",
}
