package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// TestTheBootOfOtherHardware: a machine whose cards are others has rebooted, and its fence is lifted. The boot of another
// board proves nothing, however often it comes; an older agent's fingerprint is accepted once and replaced.
func TestTheBootOfOtherHardware(t *testing.T) {
	s := storetest.New(t)
	board := hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b32", Serial: "SN-1", MACs: []string{"00:25:90:00:00:01"}}
	change := func(change func(*hwid.Facts)) string {
		f := board
		change(&f)
		return f.Fingerprint()
	}
	other := change(func(f *hwid.Facts) { f.UUID = "4c4c4544-0031-3510-8052-b7c04f4e4b33" })
	for i, c := range []struct {
		name, known, shown string
		proves             bool
	}{
		{"the same", board.Fingerprint(), board.Fingerprint(), true},
		{"another card", board.Fingerprint(), change(func(f *hwid.Facts) { f.MACs = []string{"00:25:90:00:00:02"} }), true},
		{"no card yet", board.Fingerprint(), change(func(f *hwid.Facts) { f.MACs = nil }), true},
		{"nothing to read", board.Fingerprint(), "", true},
		{"another board", board.Fingerprint(), other, false},
		{"an upgraded agent", "hw", board.Fingerprint(), true},
		{"a rolled back agent", board.Fingerprint(), "hw", true},
		{"two older agents", "hw", "hw-2", false},
	} {
		for _, late := range []bool{false, true} {
			id := fmt.Sprintf("m-%d-%t", i, late)
			a := storetest.Live(t, s, id)
			hello := func(boot, hardware string) int64 {
				h := a.Hello("st-1", boot)
				h.HardwareFingerprint, h.LastGrantSeq, h.SessionID = hardware, 1, "s-"+id+boot
				return storetest.Open(t, s, h).Epoch
			}
			epoch := hello("boot-1", c.known)
			op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "reboot-" + id,
				Type: fleet.Reboot}).GetOperationId()
			cmd := storetest.Decide(t, s, op, operation.Evaluate{}).Command
			if asked := storetest.Decide(t, s, op, storetest.Ask(a, cmd, 2, epoch)); !asked.Decision.Grant {
				t.Fatalf("%s: no grant: %+v", c.name, asked.Decision.Refusal)
			}
			if late {
				if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{},
					storetest.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				epoch = hello("boot-2", c.shown)
			}
			if !late {
				storetest.Decide(t, s, op, operation.SessionOpened{AgentID: a.ID, StateID: "st-1", BootID: "boot-2",
					OfTarget: true, Epoch: epoch})
				after := storetest.Decide(t, s, op, operation.Resulted{CommandID: cmd.ID, AgentID: a.ID, StateID: "st-1",
					Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2", Epoch: epoch})
				remark := after.Decision.Op.Evidence[evidence.HardwareRemarks]
				if (after.Phase == operation.Succeeded) != c.proves || c.name == "another card" && remark == "" {
					t.Errorf("%s: the reboot is %s, %q", c.name, after.Phase, remark)
				}
				continue
			}
			m, err := s.Machines.GetMachine(t.Context(), id, "")
			if err != nil || (m.GetStatus().GetUnresolvedCommandId() == "") != c.proves {
				t.Errorf("%s: the fence is %q, %v", c.name, m.GetStatus().GetUnresolvedCommandId(), err)
			}
		}
	}
}
