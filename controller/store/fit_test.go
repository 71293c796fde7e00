package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// ofMetal gives the rig's machine a system of its own, whose agent is connected and has reported these disks.
func (r *metalRig) ofMetal(disks string, capabilities ...string) enrolled {
	r.Helper()
	a := enrol(r, r.s, store.NewToken{TokenID: "t-host", MachineID: "m-1"})
	h := a.hello("st-host", "boot-host")
	h.Capabilities = capabilities
	open(r, r.s, h)
	if disks != "" {
		doc := fmt.Sprintf(`{"cpu":{"architecture":"amd64"},"os":{"firmware_is":"bios"},"nics":[{"name":"eth0","mac":%q}],"disks":[%s]}`, metalMAC, disks)
		if err := r.s.InventoryEvent(r.Context(), store.EventKey{AgentID: a.id, StateID: "st-host", Seq: 1}, "m-1", "h1", []byte(doc), false, now()); err != nil {
			r.Fatal(err)
		}
		if _, err := r.s.AdmitHealthy(r.Context(), now()); err != nil {
			r.Fatal(err)
		}
	}
	return a
}

// TestAReimageThatCannotSucceedIsRefused: by what the running system has reported, with the reason, the machine and what to
// do; no operation comes of it. What is not known is no refusal.
func TestAReimageThatCannotSucceedIsRefused(t *testing.T) {
	t.Parallel()
	const (
		right = `{"name":"sda","serial":"QM1","size_bytes":1073741824}`
		other = `{"name":"sda","serial":"QM2","size_bytes":1073741824}`
		small = `{"name":"sda","serial":"QM1","size_bytes":1048576}`
	)
	for name, c := range map[string]struct {
		disks, sql, path string
		away             bool
		want             string
	}{
		"it fits":                    {disks: right},
		"no disk is meant":           {disks: other, want: "DISK_RULE_NO_UNIQUE_MATCH"},
		"two disks are meant":        {disks: right + "," + right, want: "DISK_RULE_NO_UNIQUE_MATCH"},
		"the disk is too small":      {disks: small, want: "IMAGE_TOO_LARGE"},
		"another architecture":       {disks: right, sql: `UPDATE images SET arch = 'arm64' WHERE image_ref = 'tiny'`, want: "IMAGE_UNSUPPORTED"},
		"another firmware":           {disks: right, sql: `UPDATE images SET firmware = '{uefi}' WHERE image_ref = 'tiny'`, want: "IMAGE_UNSUPPORTED"},
		"no installer for it":        {disks: right, sql: `UPDATE images SET arch = 'arm64' WHERE kind <> 'os'`, want: "INSTALLER_MISSING"},
		"no installer":               {sql: `DELETE FROM images WHERE kind <> 'os'`, want: "INSTALLER_MISSING"},
		"no provisioning network":    {sql: `UPDATE sites SET segments = '[]'`, want: "NO_BOOT_PATH"},
		"a way that it does not go":  {path: "kexec", want: "NO_BOOT_PATH"},
		"no BMC":                     {sql: `UPDATE machines SET spec = spec - 'bmc_endpoint'`, want: "NO_BOOT_PATH"},
		"no inventory":               {},
		"an inventory of long ago":   {disks: other, away: true},
		"a document that is rubbish": {disks: `5`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMetalRig(t)
			r.ofMetal(c.disks, "reboot")
			if c.away {
				exec(t, r.s, `UPDATE agent_sessions SET ended_at = now() WHERE state_id = 'st-host'`)
			}
			if c.sql != "" {
				exec(t, r.s, c.sql)
			}
			in := inputs("tiny")
			in.InstallerPath = c.path
			op, _, err := r.s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: in, Actor: "tester"}, now())
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			f := failure.From(err)
			if !failure.HasReason(err, c.want) || f.Kind != failure.KindPrecondition || f.Metadata["machine_id"] != "m-1" || f.Metadata["image_ref"] != "tiny" {
				t.Fatalf("%v, %v", op, err)
			}
			if !strings.Contains(err.Error(), "`ingot ") {
				t.Errorf("no next step: %v", err)
			}
			if n := count(t, r.s, "SELECT count(*) FROM operations WHERE type = 'REIMAGE'"); n != 0 {
				t.Errorf("%d operations", n)
			}
		})
	}
}

// TestAnInstallationThatCannotSucceedAnyMoreStaysInItsSystem: the disks changed after the operation was asked for. It fails
// before anything is sent to the machine, and the node is what it was.
func TestAnInstallationThatCannotSucceedAnyMoreStaysInItsSystem(t *testing.T) {
	t.Parallel()
	r := newMetalRig(t)
	a := r.ofMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot")
	before := state(t, r.s, "m-1")
	op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: inputs("tiny")})
	doc := `{"cpu":{"architecture":"amd64"},"disks":[{"name":"sda","serial":"QM2","size_bytes":1073741824}]}`
	if err := r.s.InventoryEvent(t.Context(), store.EventKey{AgentID: a.id, StateID: "st-host", Seq: 2}, "m-1", "h2", []byte(doc), false, now()); err != nil {
		t.Fatal(err)
	}
	got := r.decide(op.GetOperationId(), operation.Look{})
	if got.Phase != operation.Failed || got.Decision.Op.Error.Code != "DISK_RULE_NO_UNIQUE_MATCH" {
		t.Fatalf("it is %s: %+v", got.Phase, got.Decision.Op.Error)
	}
	if n := count(t, r.s, "SELECT count(*) FROM commands"); n != 0 || state(t, r.s, "m-1") != before {
		t.Errorf("%d commands, and the node went from %s to %s", n, before, state(t, r.s, "m-1"))
	}
	m, err := r.s.GetMachine(t.Context(), "m-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if m.GetStatus().GetBootAssignment() != "disk" {
		t.Errorf("it would boot %s", m.GetStatus().GetBootAssignment())
	}
}

// TestARefusedPreflightLeavesTheNodeAsItWas: with the controller killed around every decision. The node neither moves nor
// counts an attempt, and its system keeps its identity, which ends with a verified write and not before.
func TestARefusedPreflightLeavesTheNodeAsItWas(t *testing.T) {
	for _, crash := range []string{"", "store.before-apply", "store.before-commit", "store.after-commit"} {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			r := newMetalRig(t)
			r.crash, r.extra = crash, []string{"preflight"}
			old := r.ofMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot")
			before, moves := state(t, r.s, "m-1"), len(nodeMoves(t, r.s, "m-1"))
			op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r1", Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
			inst := r.intoInstaller(op)
			r.answers(op, inst, operation.OutcomeFailed, "DISK_RULE_NO_UNIQUE_MATCH")
			r.applied()
			r.grant(op, inst, "st-boot-ram", "boot-ram")
			r.oldSystem(old, "boot-host-2")
			got, err := r.s.GetOperation(t.Context(), op)
			if err != nil || got.GetError().GetCode() != "DISK_RULE_NO_UNIQUE_MATCH" || !strings.Contains(got.GetError().GetMessage(), "runs again") {
				t.Fatalf("the operation is %v (%v)", got, err)
			}
			m := machine(t, r.s, "m-1").GetStatus()
			if state(t, r.s, "m-1") != before || len(nodeMoves(t, r.s, "m-1")) != moves || m.GetInstallAttempts() != 0 || m.GetUnresolvedCommandId() != "" {
				t.Errorf("the node went from %s to %s, %v", before, state(t, r.s, "m-1"), m)
			}
			r.holdsRevoked(old, 0)

			op = start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r2", Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
			inst = r.intoInstaller(op)
			r.answers(op, inst, operation.OutcomeSucceeded, "")
			if state(t, r.s, "m-1") != before {
				t.Errorf("the node moved before the write was granted: %s", state(t, r.s, "m-1"))
			}
			r.grant(op, inst, "st-boot-ram", "boot-ram")
			if state(t, r.s, "m-1") == before {
				t.Error("the write was granted, and the node is what it was")
			}
			r.holdsRevoked(old, 0)
			r.decide(op, operation.Resulted{
				CommandID: r.command(op).GetCommandId(), AgentID: inst.id, StateID: "st-boot-ram", Outcome: operation.OutcomeSucceeded,
				Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
			})
			r.holdsRevoked(old, 1)
		})
	}
}

// answers is what the installer says to its preflight, which needs no grant.
func (r *metalRig) answers(op string, inst enrolled, outcome operation.Outcome, reason string) {
	r.Helper()
	c := r.command(op)
	if c.GetPreflight().GetDiskRule() != "serial=QM1" || c.GetPreflight().GetRawSize() != 100 || c.GetNeedsGrant() {
		r.Fatalf("the command is %v", c)
	}
	r.decide(op, operation.Resulted{
		CommandID: c.GetCommandId(), AgentID: inst.id, StateID: "st-boot-ram", Outcome: outcome, Reason: reason,
		Evidence: map[string]string{evidence.PreflightDisk: "QM1"},
	})
}

// oldSystem opens a session of the system that the machine came from.
func (r *metalRig) oldSystem(a enrolled, boot string) {
	r.Helper()
	h := a.hello("st-host", boot)
	h.Capabilities, h.LastEventSeq = []string{"reboot"}, 1
	for _, id := range open(r, r.s, h).Operations {
		r.decide(id, operation.SessionOpened{AgentID: a.id, StateID: "st-host", BootID: boot, OfTarget: true})
	}
}

func (r *metalRig) holdsRevoked(a enrolled, want int) {
	r.Helper()
	if n := count(r, r.s, "SELECT count(*) FROM agent_certs WHERE agent_id = $1 AND revoked_at IS NOT NULL", a.id); n != want {
		r.Errorf("%d certificates of the old system are revoked, want %d", n, want)
	}
}
