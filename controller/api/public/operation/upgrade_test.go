package operation_test

import (
	"encoding/pem"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestAnUpgradeIsARun: of the built-in plan, in maintenance, on a machine whose cluster is known.
func TestAnUpgradeIsARun(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	_, err := r.Store.Credentials.SetCluster(
		ctx,
		credentialstore.SealedCluster{Ref: "cluster-a", Server: "https://api:6443",
			CAPEM: ca, Sealed: []byte("sealed")},
		"tester",
		time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	upgrade := &pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "UPGRADE",
		Params: map[string]string{"image_ref": "img"}}
	r.Register(&pb.Machine{MachineId: "m-1"})
	_, err = r.Runs.StartRun(ctx, upgrade)
	publictest.Wants(t, err, failure.KindPrecondition, "WRONG_PHASE", "")
	r.Maintenance("m-1")
	_, err = r.Runs.StartRun(ctx, upgrade)
	publictest.Wants(t, err, failure.KindPrecondition, "CLUSTER_NOT_CONFIGURED", "")
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{TargetClusterRef: "cluster-a"}})
	run, err := r.Runs.StartRun(ctx, upgrade)
	if err != nil || run.GetType() != "UPGRADE" || run.GetPlanId() != "upgrade" {
		t.Fatalf("started %v, %v", run, err)
	}
	var kinds []string
	for _, s := range run.GetSteps() {
		kinds = append(kinds, s.GetKind())
	}
	if want := []string{"drain", "repave", "reboot", "join", "verify"}; !slices.Equal(kinds, want) {
		t.Errorf("its steps are %v, want %v", kinds, want)
	}
}
