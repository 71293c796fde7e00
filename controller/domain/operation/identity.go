package operation

import (
	"maps"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// uncorroborated is the evidence of an installer that proved no more than its place on the network, where no BMC has
// seen the machine do what the installer says.
const uncorroborated = "uncorroborated"

// withIdentity adds to a step's evidence how the installer proved which machine it is.
func (d *decider) withIdentity(proof map[string]string) map[string]string {
	b := d.w.Boot
	if b.IdentityLevel == "" {
		return proof
	}
	out := maps.Clone(proof)
	if out == nil {
		out = map[string]string{}
	}
	out[evidence.IdentityLevel] = b.IdentityLevel
	if b.IdentityTrust != "" {
		out[evidence.IdentityTrust] = b.IdentityTrust
	}
	if b.IdentityLevel == "network" {
		out[evidence.Corroboration] = uncorroborated
	}
	return out
}
