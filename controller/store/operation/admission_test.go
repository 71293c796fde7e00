package operation_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

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
			op, _, err := s.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
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
		_, _, err := r.Store.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1", RequestID: "r",
			Kind: workflow.Decommission, Mode: workflow.FullDecommission, DryRun: dry, Actor: "tester"}, storetest.Now())
		storetest.WantReason(t, err, "INSTALLER_MISSING")
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM workflows"); n != 0 ||
		storetest.State(t, r.Store, "m-1") != before {
		t.Errorf("%d workflows, and the node went from %s to %s", n, before, storetest.State(t, r.Store, "m-1"))
	}
}
