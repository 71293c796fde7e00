package kind

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
