package operation_test

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestAReimageThatCannotSucceedIsRefused: by what the running system has reported, with the reason, the machine and
// what to do; no operation comes of it. What is not known is no refusal.
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
		"it fits":               {disks: right},
		"no disk is meant":      {disks: other, want: "DISK_RULE_NO_UNIQUE_MATCH"},
		"two disks are meant":   {disks: right + "," + right, want: "DISK_RULE_NO_UNIQUE_MATCH"},
		"the disk is too small": {disks: small, want: "IMAGE_TOO_LARGE"},
		"another architecture": {disks: right, sql: `UPDATE images SET arch = 'arm64' WHERE image_ref = 'tiny'`,
			want: "IMAGE_UNSUPPORTED"},
		"another firmware": {disks: right, sql: `UPDATE images SET firmware = '{uefi}' WHERE image_ref = 'tiny'`,
			want: "IMAGE_UNSUPPORTED"},
		"no installer for it": {disks: right, sql: `UPDATE images SET arch = 'arm64' WHERE kind <> 'os'`,
			want: "INSTALLER_MISSING"},
		"no installer":              {sql: `DELETE FROM images WHERE kind <> 'os'`, want: "INSTALLER_MISSING"},
		"no provisioning network":   {sql: `UPDATE sites SET segments = '[]'`, want: "NO_BOOT_PATH"},
		"a way that it does not go": {path: "kexec", want: "NO_BOOT_PATH"},
		"no BMC":                    {sql: `UPDATE machines SET spec = spec - 'bmc_endpoint'`, want: "NO_BOOT_PATH"},
		"media, and nobody gives addresses": {path: "media", want: "NO_INSTALL_ADDRESS",
			sql: `UPDATE sites SET segments = '[{"name": "boot", "mode": "static"}]'`},
		"media, with an address": {path: "media", sql: `WITH s AS (UPDATE sites SET segments = '[{"name": "boot", "mode": "static"}]')
			UPDATE machines SET spec = spec || '{"install_address": "10.20.0.7/24"}'`},
		"media over IPMI": {path: "media", want: "MEDIA_UNSUPPORTED",
			sql: `UPDATE machines SET spec = spec || '{"bmc_endpoint": "ipmi://10.20.0.9"}'`},
		"media without a BMC": {path: "media", sql: `UPDATE machines SET spec = spec - 'bmc_endpoint'`, want: "NO_BOOT_PATH"},
		"the machine's own way": {sql: `UPDATE machines SET spec = spec || '{"bmc_endpoint": "ipmi://10.20.0.9", "install_path": "media"}'`,
			want: "MEDIA_UNSUPPORTED"},
		"no inventory":               {},
		"an inventory of long ago":   {disks: other, away: true},
		"a document that is rubbish": {disks: `5`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := storetest.NewMetalRig(t)
			r.OfMetal(c.disks, "reboot")
			if c.away {
				storetest.Exec(t, r.Store, `UPDATE agent_sessions SET ended_at = now() WHERE state_id = 'st-host'`)
			}
			if c.sql != "" {
				storetest.Exec(t, r.Store, c.sql)
			}
			in := storetest.Inputs("tiny")
			in.InstallerPath = c.path
			op, _, err := r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
				Type: fleet.Reimage, Inputs: in, Actor: "tester"}, storetest.Now())
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			f := failure.From(err)
			if !failure.HasReason(err, c.want) || f.Kind != failure.KindPrecondition || f.Metadata["machine_id"] != "m-1" ||
				f.Metadata["image_ref"] != "tiny" {
				t.Fatalf("%v, %v", op, err)
			}
			if !strings.Contains(err.Error(), "`ingot ") {
				t.Errorf("no next step: %v", err)
			}
			if n := storetest.Count(t, r.Store, "SELECT count(*) FROM operations WHERE type = 'REIMAGE'"); n != 0 {
				t.Errorf("%d operations", n)
			}
		})
	}
}

// TestAnInstallationThatCannotSucceedAnyMoreStaysInItsSystem: the disks changed after the operation was asked for. It
// fails before anything is sent to the machine, and the node is what it was.
func TestAnInstallationThatCannotSucceedAnyMoreStaysInItsSystem(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	a := r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot")
	before := storetest.State(t, r.Store, "m-1")
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")})
	doc := `{"cpu":{"architecture":"amd64"},"disks":[{"name":"sda","serial":"QM2","size_bytes":1073741824}]}`
	if err := r.Store.Sessions.InventoryEvent(t.Context(), sessionstore.EventKey{AgentID: a.ID, StateID: "st-host",
		Seq: 2}, "m-1", "h2", []byte(doc), false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	got := r.Decide(op.GetOperationId(), operation.Evaluate{})
	if got.Phase != operation.Failed || got.Decision.Op.Error.Code != "DISK_RULE_NO_UNIQUE_MATCH" {
		t.Fatalf("it is %s: %+v", got.Phase, got.Decision.Op.Error)
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM commands"); n != 0 ||
		storetest.State(t, r.Store, "m-1") != before {
		t.Errorf("%d commands, and the node went from %s to %s", n, before, storetest.State(t, r.Store, "m-1"))
	}
	m, err := r.Store.Machines.GetMachine(t.Context(), "m-1", "")
	if err != nil {
		t.Fatal(err)
	}
	if m.GetStatus().GetBootAssignment() != "disk" {
		t.Errorf("it would boot %s", m.GetStatus().GetBootAssignment())
	}
}

// TestARefusedPreflightLeavesTheNodeAsItWas: with the controller killed around every decision. The node neither moves
// nor counts an attempt, and its system keeps its identity, which ends with a verified write and not before.
func TestARefusedPreflightLeavesTheNodeAsItWas(t *testing.T) {
	for _, crash := range []string{"", "store.before-apply", "store.before-commit", "store.after-commit"} {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			r := storetest.NewMetalRig(t)
			r.Crash, r.Extra = crash, []string{"preflight"}
			old := r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot")
			before, moves := storetest.State(t, r.Store, "m-1"), len(storetest.NodeMoves(t, r.Store, "m-1"))
			op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r1", Type: fleet.Reimage,
				Inputs: storetest.Inputs("tiny")}).GetOperationId()
			inst := r.IntoInstaller(op)
			r.Answers(op, inst, operation.OutcomeFailed, "DISK_RULE_NO_UNIQUE_MATCH")
			r.Applied()
			r.Grant(op, inst, "st-boot-ram", "boot-ram")
			r.OldSystem(old, "boot-host-2")
			got, err := r.Store.OperationQueries.GetOperation(t.Context(), op)
			if err != nil || got.GetError().GetCode() != "DISK_RULE_NO_UNIQUE_MATCH" ||
				!strings.Contains(got.GetError().GetMessage(), "runs again") {
				t.Fatalf("the operation is %v (%v)", got, err)
			}
			m := storetest.Machine(t, r.Store, "m-1").GetStatus()
			if storetest.State(t, r.Store, "m-1") != before || len(storetest.NodeMoves(t, r.Store, "m-1")) != moves ||
				m.GetInstallAttempts() != 0 || m.GetUnresolvedCommandId() != "" {
				t.Errorf("the node went from %s to %s, %v", before, storetest.State(t, r.Store, "m-1"), m)
			}
			r.HoldsRevoked(old, 0)

			op = storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r2", Type: fleet.Reimage,
				Inputs: storetest.Inputs("tiny")}).GetOperationId()
			inst = r.IntoInstaller(op)
			r.Answers(op, inst, operation.OutcomeSucceeded, "")
			if storetest.State(t, r.Store, "m-1") != before {
				t.Errorf("the node moved before the write was granted: %s", storetest.State(t, r.Store, "m-1"))
			}
			r.Grant(op, inst, "st-boot-ram", "boot-ram")
			if storetest.State(t, r.Store, "m-1") == before {
				t.Error("the write was granted, and the node is what it was")
			}
			r.HoldsRevoked(old, 0)
			r.Decide(op, operation.Resulted{
				CommandID: r.Command(op).GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram",
				Outcome:  operation.OutcomeSucceeded,
				Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
			})
			r.HoldsRevoked(old, 1)
		})
	}
}

// TestAnImageIsAnImage: a simulated machine, which has no disk, takes what a real one would take. Without any image in
// the catalogue no name could be right, and it takes any; a preview names that.
func TestAnImageIsAnImage(t *testing.T) {
	t.Parallel()
	const (
		system = `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes,
			minimum_disk_bytes, created_at) VALUES ('tiny', 'os', 'amd64', 'raw', 'cc', 'dd', 1, 1, 1, now())`
		kernel = `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes,
			minimum_disk_bytes, created_at) VALUES ('k', 'installer-kernel', 'amd64', 'raw', 'aa', 'aa', 1, 1, 0, now())`
	)
	for name, c := range map[string]struct {
		sql         []string
		image, want string
	}{
		"an image":                                 {sql: []string{system, kernel}, image: "tiny"},
		"a typing error":                           {sql: []string{system, kernel}, image: "tinny", want: "IMAGE_NOT_FOUND"},
		"a kernel":                                 {sql: []string{system, kernel}, image: "k", want: "IMAGE_NOT_FOUND"},
		"a kernel, where there is no image":        {sql: []string{kernel}, image: "k", want: "IMAGE_NOT_FOUND"},
		"any name, where the catalogue has none":   {image: "demo"},
		"any name, where it has an installer only": {sql: []string{kernel}, image: "demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			storetest.Register(t, s, "m-1")
			storetest.Simulated(t, s, "m-1")
			storetest.Maintenance(t, s, "m-1")
			for _, sql := range c.sql {
				storetest.Exec(t, s, sql)
			}
			op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
				Type: fleet.Reimage, Inputs: storetest.Inputs(c.image), Actor: "tester"}, storetest.Now())
			if c.want != "" {
				storetest.WantReason(t, err, c.want)
				return
			}
			if err != nil || op.GetPhase() != baremetalv1.Operation_PENDING {
				t.Fatalf("%v, %v", op, err)
			}
		})
	}
}

// TestAStageThatWouldBeRefusedIsRefusedAtTheStart: a decommission needs an installer at its fourth stage, and the
// catalogue has none. The dry run and the call give the same answer, and the node stays where it is.
func TestAStageThatWouldBeRefusedIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot", "netboot")
	storetest.Exec(t, r.Store, `DELETE FROM images WHERE kind <> 'os'`)
	before := storetest.State(t, r.Store, "m-1")
	for _, dry := range []bool{true, false} {
		_, _, err := r.Store.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1",
			RequestID: "r", Kind: workflow.Decommission, Mode: workflow.FullDecommission, DryRun: dry, Actor: "tester"},
			storetest.Now())
		storetest.WantReason(t, err, "INSTALLER_MISSING")
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM workflows"); n != 0 ||
		storetest.State(t, r.Store, "m-1") != before {
		t.Errorf("%d workflows, and the node went from %s to %s", n, before, storetest.State(t, r.Store, "m-1"))
	}
}
