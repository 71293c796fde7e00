package harness

import (
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// History is everything that happened to one machine: the API's data, and the world's.
type History = check.MachineHistory

// Outside marks effects that a test causes itself.
const Outside = check.Outside

// History reads it. A machine whose world is shared sees its own part of the journal only.
func (m *Machine) History() History {
	m.t.Helper()
	var h History
	// The parts are read one after the other; they belong together if the machine has not changed meanwhile.
	testkit.Eventually(m.t, time.Minute, func() bool {
		h = History{Machine: m.c.Machine(m.ID), Operations: m.c.OperationsOf(m.ID), Commands: m.c.Commands(m.ID)}
		return m.c.Machine(m.ID).GetVersion() == h.Machine.GetVersion()
	}, "machine %s never stands still", m.ID)
	slices.Reverse(h.Operations)
	slices.SortStableFunc(h.Commands, func(a, b *baremetalv1.Command) int {
		return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime())
	})
	for _, r := range m.Journal() {
		if r.MachineID == m.o.SimID || r.MachineID == m.ID {
			h.Journal = append(h.Journal, r)
		}
	}
	st, err := m.World.State(m.o.SimID)
	if err != nil {
		m.t.Fatalf("read world: %v", err)
	}
	h.Pending = len(st.Pending)
	return h
}

// WaitQuiet waits until no operation is active and no accepted effect is still to come.
func (m *Machine) WaitQuiet(limit time.Duration) History {
	m.t.Helper()
	var h History
	testkit.Eventually(m.t, limit, func() bool {
		h = m.History()
		return h.Machine.GetStatus().GetActiveOperationId() == "" && h.Pending == 0
	}, "machine %s does not come to rest: %v", m.ID, lazy(func() string { return h.String() }))
	return h
}
