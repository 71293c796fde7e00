package node

// Ownerless says where a node goes that is in a state of work while no operation and no workflow of it is open: to the
// state in which nobody need work on it, or out of all work where what was done to it is not known. ok is false for
// states that need no owner.
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
