package kind

import (
	"cmp"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Repave writes an image to a disk, from the installer.
const Repave Kind = "repave"

var repave = Declaration{
	Kind:           Repave,
	Step:           true,
	Runs:           true,
	Action:         "repave",
	Mode:           "path",
	Modes:          InstallerPaths,
	Check:          checkRepave,
	Fill:           fillRepave,
	Missing:        "REPAVE_NOT_WIRED",
	Preflight:      Preflight,
	Harm:           Destroys,
	Timeout:        1800 * time.Second,
	Retries:        1,
	NeedsInstaller: true,
	WritesSystem:   true,
	DestroysSystem: true,
	Evidence:       evidence.ImageDigest,
	Started:        "Repaving",
	Done:           "Repave complete",
	Doing:          "the image is being written",
}

func checkRepave(s *baremetalv1.Step, path string) error {
	if s.GetRepave().GetAgentless() {
		return Invalid("INVALID_FIELD", path+".agentless", "ask for it where the plan is run")
	}
	return nil
}

// fillRepave fails where a step needs an image and none is named.
func fillRepave(s *baremetalv1.Step, in Inputs) error {
	r := s.GetRepave()
	r.Image = cmp.Or(r.GetImage(), in.ImageRef)
	r.Path = cmp.Or(r.GetPath(), in.InstallerPath, in.MachinePath)
	r.Agentless = in.Agentless
	if r.GetImage() == "" {
		return failure.Precondition("MACHINE_HAS_NO_IMAGE",
			"neither the request, the plan, the machine nor the server names an image").
			WithField("image_ref", "name an image, or set spec.default_image_ref of the machine")
	}
	return nil
}
