package node

// Ownerless returns the next state of a node in a state of work without an open operation or workflow. It is one that
// needs no work, or one out of all work if the effect of the work is unknown. ok is false for states that need no
// owner.
func Ownerless(s State) (to State, ok bool) {
	switch s {
	case Installing, Reprovision:
		return Pending, true
	case Draining:
		return Offline, true
	case Removing:
		return Retired, true
	case Enrolling, Deprovisioning, Migrating:
		return Quarantined, true
	}
	return s, false
}
