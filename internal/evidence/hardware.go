package evidence

// Verdicts of a test of hardware.
const (
	HardwarePassed  = "passed"
	HardwareFailed  = "failed"
	HardwareSkipped = "skipped"
)

// HardwareResult is what came of one test of one part; HardwareTests is a list of them.
type HardwareResult struct {
	// Test is "nic", "cpu", "memory" or "disk".
	Test string `json:"test"`
	// Part identifies the part: a slot, a processor, a disk's serial number, an interface.
	Part string `json:"part,omitempty"`
	// Class is what the figure is compared by, beside the machine's model, such as the model of a disk.
	Class   string  `json:"class,omitempty"`
	Verdict string  `json:"verdict"`
	Figure  float64 `json:"figure,omitempty"`
	Unit    string  `json:"unit,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}
