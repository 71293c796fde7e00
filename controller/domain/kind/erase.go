package kind

import (
	"cmp"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Erase erases disks, from the installer.
const Erase Kind = "erase"

var erase = Declaration{
	Kind:   Erase,
	Step:   true,
	Runs:   true,
	Action: "erase",
	Mode:   "path",
	Modes:  InstallerPaths,
	Check: func(s *baremetalv1.Step, path string) error {
		return oneOf(path+".method", s.GetErase().GetMethod(), eraseMethods)
	},
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		s.GetErase().Path = cmp.Or(s.GetErase().GetPath(), in.MachinePath)
		return nil
	},
	Harm:           Destroys,
	Timeout:        24 * time.Hour, // a large disk takes longer than any other step
	NeedsInstaller: true,
	DestroysSystem: true,
	Evidence:       evidence.EraseMethod,
	Started:        "Erasing disks",
	Done:           "Disks erased",
	Doing:          "disks are being erased",
}

var eraseMethods = []string{"auto", "nvme-sanitize", "nvme-format", "ata-secure-erase", "discard", "overwrite"}
