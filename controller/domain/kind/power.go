package kind

import (
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Power restarts the machine through its BMC, with the device of the next boot set first.
const Power Kind = "power"

var power = Declaration{
	Kind:          Power,
	Action:        "power",
	Harm:          Interrupts,
	UsesBMC:       true,
	SwitchesPower: true,
	Restarts:      true,
	ProvenByBoot:  true,
	Path:          PathBMC,
	Doing:         "the BMC is switching the machine off and on",
	Entered:       "switched off and on through its BMC",
}

// PowerOff switches the machine off through its BMC.
const PowerOff Kind = "power_off"

var powerOff = Declaration{
	Kind:          PowerOff,
	Action:        "power",
	Capability:    "power",
	Harm:          Interrupts,
	UsesBMC:       true,
	SwitchesPower: true,
	Unstoppable:   true,
	Evidence:      evidence.PowerOffSeenAt,
	Doing:         "the BMC is switching the machine off",
}

// PowerOn switches the machine on through its BMC.
const PowerOn Kind = "power_on"

var powerOn = Declaration{
	Kind:          PowerOn,
	Action:        "power",
	Capability:    "power",
	Harm:          Harmless,
	UsesBMC:       true,
	SwitchesPower: true,
	Unstoppable:   true,
	Evidence:      evidence.PowerOnSeenAt,
	Doing:         "the BMC is switching the machine on",
}
