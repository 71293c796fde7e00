package kind

import (
	"github.com/ingot-metal/ingot/internal/evidence"
)

// BMCPassword changes the password of the machine's BMC to one of its own.
const BMCPassword Kind = "bmc_password"

var bmcPassword = Declaration{
	Kind:       BMCPassword,
	Action:     "bmc_password",
	Capability: "bmc-password",
	Harm:       Harmless,
	Evidence:   evidence.BMCPasswordAcceptedAt,
	Doing:      "the BMC gets a password",
}
