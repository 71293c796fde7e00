package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// ProviderAction has the machine's provider act, by the site agent. Its mode is the action.
const ProviderAction Kind = "provider_action"

var providerAction = Declaration{
	Kind:     ProviderAction,
	Step:     true,
	Runs:     true,
	Action:   "provider_action",
	Harm:     Interrupts,
	Timeout:  1800 * time.Second,
	Retries:  1,
	Evidence: evidence.ProviderSaid,
	Started:  "Asking the provider",
	Done:     "The provider shows it",
}
