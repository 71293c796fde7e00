package operation

// Harm is what work does to a machine. Budgets, confirmations and bounds of bulk work follow from it.
type Harm int

// The harms, each worse than those before it.
const (
	// Harmless work leaves the machine in service.
	Harmless Harm = iota
	// Interrupts takes the machine out of service for a while; its data stay.
	Interrupts
	// Destroys loses data or a record.
	Destroys
)

// String returns the name in the API.
func (h Harm) String() string {
	return [...]string{"HARMLESS", "INTERRUPTS", "DESTROYS"}[h]
}

// harms are the harms of steps by kind, where the fields of the step do not make it worse.
var harms = map[string]Harm{
	"ssh":             Harmless, // as its script is declared
	"reboot":          Interrupts,
	"netboot":         Interrupts,
	"repave":          Destroys,
	"join":            Harmless,
	"verify":          Harmless,
	"net":             Harmless,
	"rma":             Destroys,
	"inspect":         Harmless,
	"erase":           Destroys,
	"wait_for_agent":  Harmless,
	"drain":           Interrupts,
	"provider_action": Interrupts,
	"set_phase":       Interrupts,
	"workflow_stage":  Harmless,
	"uncordon":        Harmless,
	"reset_devices":   Destroys,
	"test_hardware":   Interrupts,
}

// HarmOf returns the harm of steps of a kind. A kind that the table lacks destroys.
func HarmOf(kind string) Harm {
	if h, ok := harms[kind]; ok {
		return h
	}
	return Destroys
}

// NeedsSlot reports whether budgets must admit the operation.
func (o Operation) NeedsSlot() bool { return o.Destructive || o.Interrupts }

// Slots names the slots that the operation needs, by the harms that budgets limit.
func (o Operation) Slots() string {
	switch {
	case o.Destructive && o.Interrupts:
		return "slots of the budgets for destructive work and for machines out of service"
	case o.Interrupts:
		return "a slot of the budgets for machines out of service"
	}
	return "a slot of the budgets for destructive work"
}
