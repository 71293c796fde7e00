package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestHardware tests the machine's hardware, and changes nothing.
const TestHardware Kind = "test_hardware"

var testHardware = Declaration{
	Kind:     TestHardware,
	Step:     true,
	Runs:     true,
	Action:   "test_hardware",
	Harm:     Interrupts,
	Timeout:  600 * time.Second,
	Retries:  1,
	AsksHost: true,
	Evidence: evidence.HardwareTests,
	Started:  "Testing hardware",
	Done:     "Hardware tested",
	Doing:    "the hardware is being tested",
}
