package storetest

import (
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// OfMetal gives the rig's machine a system of its own, whose agent is connected and has reported these disks.
func (r *MetalRig) OfMetal(disks string, capabilities ...string) Enrolled {
	r.T.Helper()
	a := Enrol(r.T, r.Store, agentstore.NewToken{TokenID: "t-host", MachineID: "m-1"})
	h := a.Hello("st-host", "boot-host")
	h.Capabilities = capabilities
	Open(r.T, r.Store, h)
	if disks != "" {
		doc := fmt.Sprintf(
			`{"cpu":{"architecture":"amd64"},"os":{"firmware_is":"bios"},"nics":[{"name":"eth0","mac":%q}],"disks":[%s]}`,
			MetalMAC, disks)
		if err := r.Store.Sessions.InventoryEvent(r.T.Context(), sessionstore.EventKey{AgentID: a.ID, StateID: "st-host",
			Seq: 1}, "m-1", "h1", []byte(doc), false, Now()); err != nil {
			r.T.Fatal(err)
		}
		if _, err := r.Store.NodeStates.AdmitHealthy(r.T.Context(), Now()); err != nil {
			r.T.Fatal(err)
		}
	}
	return a
}

// Answers is what the installer says to its preflight, which needs no grant.
func (r *MetalRig) Answers(op string, inst Enrolled, outcome operation.Outcome, reason string) {
	r.T.Helper()
	c := r.Command(op)
	if c.GetPreflight().GetDiskRule() != "serial=QM1" || c.GetPreflight().GetRawSize() != 100 || c.GetNeedsGrant() {
		r.T.Fatalf("the command is %v", c)
	}
	r.Decide(op, operation.Resulted{
		CommandID: c.GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram", Outcome: outcome, Reason: reason,
		Evidence: map[string]string{evidence.PreflightDisk: "QM1"},
	})
}

// OldSystem opens a session of the system that the machine came from.
func (r *MetalRig) OldSystem(a Enrolled, boot string) {
	r.T.Helper()
	h := a.Hello("st-host", boot)
	h.Capabilities, h.LastEventSeq = []string{"reboot"}, 1
	for _, id := range Open(r.T, r.Store, h).Operations {
		r.Decide(id, operation.SessionOpened{AgentID: a.ID, StateID: "st-host", BootID: boot, OfTarget: true})
	}
}

func (r *MetalRig) HoldsRevoked(a Enrolled, want int) {
	r.T.Helper()
	if n := Count(r.T, r.Store, "SELECT count(*) FROM agent_certs WHERE agent_id = $1 AND revoked_at IS NOT NULL",
		a.ID); n != want {
		r.T.Errorf("%d certificates of the old system are revoked, want %d", n, want)
	}
}
