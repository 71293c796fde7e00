package operation

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
