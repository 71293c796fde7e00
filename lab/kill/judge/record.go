package judge

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// Record is all that is known of a run.
type Record struct {
	check.History
	// Agents are the names of the programs, by agent id.
	Agents       map[string]string
	Explanations []Explanation
	World        []World
}

// Explanation is one answer to the question why.
type Explanation struct {
	At time.Duration `json:"at"`
	// Live reports whether it was asked while faults struck. Every other one was asked when all was at rest.
	Live bool `json:"live,omitempty"`
	// Operation is set where the question was about an operation that had ended.
	Operation string `json:"operation,omitempty"`
	// Machine is the machine as it was then.
	Machine *baremetalv1.Machine                `json:"-"`
	Answer  *baremetalv1.ExplainMachineResponse `json:"-"`
	// Shared is a cause that many machines share; Machine and Answer are nil then.
	Shared *baremetalv1.SharedCause `json:"-"`
}

// World is a simulated machine as it was in the end.
type World struct {
	Machine string `json:"machine"`
	BootID  string `json:"boot_id"`
	On      bool   `json:"on"`
	// Image is the digest of the image on the disk; empty for none.
	Image string `json:"image"`
}
