package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Repave writes an image to a disk, from the installer.
const Repave Kind = "repave"

var repave = Declaration{
	Kind:           Repave,
	Step:           true,
	Runs:           true,
	Action:         "repave",
	Missing:        "REPAVE_NOT_WIRED",
	Harm:           Destroys,
	Timeout:        1800 * time.Second,
	Retries:        1,
	NeedsInstaller: true,
	DestroysSystem: true,
	Evidence:       evidence.ImageDigest,
	Started:        "Repaving",
	Done:           "Repave complete",
	Doing:          "the image is being written",
}
