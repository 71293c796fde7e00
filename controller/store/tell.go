package store

// created is a new operation, as a transaction notes it.
type created string

// OnApplied sets the function that tells agents and watchers of decisions that are part of something larger: an operation that
// is cancelled because its machine is blocked or retired, or that a report moves.
func (s *Store) OnApplied(tell func(*Applied)) { s.applied = tell }

// tell does what follows a commit.
func (s *Store) tell(notes []any) {
	var applied []*Applied
	var operations []string
	room := false
	for _, n := range notes {
		switch n := n.(type) {
		case moved:
			n.log(s.log)
		case slotFreed:
			room = true
		case created:
			operations = append(operations, string(n))
		case *Applied:
			applied = append(applied, n)
		}
	}
	if room {
		s.tellRoom()
	}
	for _, id := range operations {
		s.notePosition(id, 0, "", 0)
	}
	s.noteApplied(applied...)
	if s.created != nil {
		for _, id := range operations {
			s.created(id)
		}
	}
	if s.applied == nil {
		return
	}
	for _, d := range applied {
		s.applied(d)
	}
}

// noteApplied remembers what was committed with decisions.
func (s *Store) noteApplied(applied ...*Applied) {
	for _, a := range applied {
		switch {
		case a == nil || a.StaleVersion:
		case a.Command == nil:
			s.notePosition(a.OperationID, a.Version, "", 0)
		default:
			s.notePosition(a.OperationID, a.Version, a.Command.ID, int64(a.Command.GrantSeq))
		}
	}
}
