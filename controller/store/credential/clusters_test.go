package credential_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func TestClustersAreKept(t *testing.T) {
	t.Parallel()
	r := storetest.NewClusterRig(t)
	if again := storetest.SetCluster(t, r.Store, "prod"); again.Version != 2 {
		t.Errorf("version %d", again.Version)
	}
	storetest.SetCluster(t, r.Store, "spare")
	if all, err := r.Store.Credentials.ListClusters(t.Context(), "prod", 10); err != nil || len(all) != 1 ||
		all[0].Ref != "spare" {
		t.Errorf("after prod: %v %v", all, err)
	}
	_, err := r.Store.Credentials.DeleteCluster(t.Context(), "prod", "tester", storetest.Now())
	storetest.WantReason(t, err, "CLUSTER_IN_USE")
	storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "d", Type: fleet.RunPlan,
		PlanID: "drain"})
	storetest.Exec(t, r.Store, "UPDATE machines SET spec = spec - 'target_cluster_ref' WHERE machine_id = 'm-1'")
	_, err = r.Store.Credentials.DeleteCluster(t.Context(), "prod", "tester", storetest.Now())
	storetest.WantReason(t, err, "CLUSTER_IN_USE")
	if gone, err := r.Store.Credentials.DeleteCluster(t.Context(), "spare", "tester", storetest.Now()); err != nil ||
		gone.Ref != "spare" {
		t.Errorf("%v %v", gone, err)
	}
	_, err = r.Store.Credentials.GetCluster(t.Context(), "spare")
	storetest.WantReason(t, err, "CLUSTER_NOT_FOUND")
	if n := storetest.Count(t, r.Store,
		"SELECT count(*) FROM audit_log WHERE verb IN ('SET_CLUSTER', 'DELETE_CLUSTER')"); n != 4 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func TestAStartNeedsTheCluster(t *testing.T) {
	t.Parallel()
	r := storetest.NewClusterRig(t)
	storetest.Exec(t, r.Store,
		`UPDATE machines SET spec = spec || '{"target_cluster_ref": "gone"}' WHERE machine_id = 'm-1'`)
	_, _, err := r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "x",
		Type: fleet.JoinCluster, Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "CLUSTER_NOT_FOUND")
}

// TestAClusterIsGivenForOneCommand: to whom it was granted, while it is under way, and to nobody else.
func TestAClusterIsGivenForOneCommand(t *testing.T) {
	t.Parallel()
	r := storetest.NewClusterRig(t)
	id := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "j",
		Type: fleet.JoinCluster}).GetOperationId()
	token := *storetest.Decide(t, r.Store, id, operation.Evaluate{}).Command
	if token.Kind != kind.JoinToken || token.ExecutorID != r.Site.ID {
		t.Fatalf("the first command is %+v", token)
	}
	_, err := r.Store.Credentials.ClusterFor(t.Context(), r.Site.ID, token.ID, storetest.Now())
	storetest.WantReason(t, err, "GRANT_REFUSED")
	storetest.Grant(t, r.Store, id, token, "st-2", 1)
	_, err = r.Store.Credentials.ClusterFor(t.Context(), r.Host.ID, token.ID, storetest.Now())
	storetest.WantReason(t, err, "COMMAND_NOT_FOUND")
	a, err := r.Store.Credentials.ClusterFor(t.Context(), r.Site.ID, token.ID, storetest.Now())
	if err != nil || a.Ref != "prod" || a.Join != token.ID || string(a.Sealed) != "sealed prod" {
		t.Fatalf("%+v %v", a, err)
	}
	sent := storetest.Decide(t, r.Store, id, operation.Resulted{AgentID: r.Site.ID, CommandID: token.ID,
		Outcome: operation.OutcomeSucceeded})
	join := *sent.Command
	var spec fleetv1.CommandSpec
	if err := proto.Unmarshal(sent.Send[0].Spec, &spec); err != nil || spec.GetJoin().GetNodeName() != "m-1" ||
		len(spec.GetJoin().GetCaHashes()) != 1 {
		t.Errorf("%v %v", &spec, err)
	}
	if join.Kind != kind.Join || join.ExecutorID != r.Host.ID {
		t.Fatalf("the second command is %+v", join)
	}
	_, err = r.Store.Credentials.ClusterFor(t.Context(), r.Site.ID, token.ID, storetest.Now())
	storetest.WantReason(t, err, "GRANT_REFUSED")
	storetest.Grant(t, r.Store, id, join, "st-1", 1)
	if a, err = r.Store.Credentials.ClusterFor(t.Context(), r.Host.ID, join.ID, storetest.Now()); err != nil ||
		a.Join != token.ID {
		t.Errorf("the join is made of %q (%v), want the token of %s", a.Join, err, token.ID)
	}
	if n := storetest.Count(t, r.Store,
		"SELECT count(*) FROM audit_log WHERE verb = 'GET_CLUSTER_ACCESS' AND target_id = 'm-1'"); n != 2 {
		t.Errorf("%d entries in the audit log", n)
	}
}
