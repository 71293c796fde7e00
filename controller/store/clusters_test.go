package store_test

import (
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// caPEM is a CA as clusters have them.
func caPEM() []byte {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

func setCluster(t testing.TB, s *store.Store, ref string) store.SealedCluster {
	t.Helper()
	c, err := s.SetCluster(t.Context(), store.SealedCluster{Ref: ref, Server: "https://api:6443", CAPEM: caPEM(), Sealed: []byte("sealed " + ref)}, "tester", now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clusterRig is a machine that names a cluster, with both agents that a join takes.
type clusterRig struct {
	s          *store.Store
	host, site enrolled
}

func newClusterRig(t *testing.T) clusterRig {
	t.Helper()
	s := storetest.New(t)
	register(t, s, "m-1")
	h := enrol(t, s, store.NewToken{TokenID: "t-host", MachineID: "m-1"})
	hello := h.hello("st-1", "boot-1")
	hello.Capabilities = []string{"join"}
	lease(t, s)
	open(t, s, hello)
	site := enrol(t, s, store.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	siteHello := site.hello("st-2", "boot-2")
	siteHello.Capabilities = []string{"cluster"}
	open(t, s, siteHello)
	maintenance(t, s, "m-1")
	setCluster(t, s, "prod")
	exec(t, s, `UPDATE machines SET spec = spec || '{"target_cluster_ref": "prod", "site": "default"}' WHERE machine_id = 'm-1'`)
	return clusterRig{s: s, host: h, site: site}
}

func TestClustersAreKept(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t)
	if again := setCluster(t, r.s, "prod"); again.Version != 2 {
		t.Errorf("version %d", again.Version)
	}
	setCluster(t, r.s, "spare")
	if all, err := r.s.ListClusters(t.Context(), "prod", 10); err != nil || len(all) != 1 || all[0].Ref != "spare" {
		t.Errorf("after prod: %v %v", all, err)
	}
	_, err := r.s.DeleteCluster(t.Context(), "prod", "tester", now())
	wantReason(t, err, "CLUSTER_IN_USE")
	start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "d", Type: fleet.RunPlan, PlanID: "drain"})
	exec(t, r.s, "UPDATE machines SET spec = spec - 'target_cluster_ref' WHERE machine_id = 'm-1'")
	_, err = r.s.DeleteCluster(t.Context(), "prod", "tester", now())
	wantReason(t, err, "CLUSTER_IN_USE")
	if gone, err := r.s.DeleteCluster(t.Context(), "spare", "tester", now()); err != nil || gone.Ref != "spare" {
		t.Errorf("%v %v", gone, err)
	}
	_, err = r.s.GetCluster(t.Context(), "spare")
	wantReason(t, err, "CLUSTER_NOT_FOUND")
	if n := count(t, r.s, "SELECT count(*) FROM audit_log WHERE verb IN ('SET_CLUSTER', 'DELETE_CLUSTER')"); n != 4 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func TestAStartNeedsTheCluster(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t)
	exec(t, r.s, `UPDATE machines SET spec = spec || '{"target_cluster_ref": "gone"}' WHERE machine_id = 'm-1'`)
	_, _, err := r.s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "x", Type: fleet.JoinCluster, Actor: "tester"}, now())
	wantReason(t, err, "CLUSTER_NOT_FOUND")
}

// TestAClusterIsGivenForOneCommand: to whom it was granted, while it is under way, and to nobody else.
func TestAClusterIsGivenForOneCommand(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t)
	id := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "j", Type: fleet.JoinCluster}).GetOperationId()
	token := *decide(t, r.s, id, operation.Look{}).Command
	if token.Kind != operation.KindJoinToken || token.ExecutorID != r.site.id {
		t.Fatalf("the first command is %+v", token)
	}
	_, err := r.s.ClusterFor(t.Context(), r.site.id, token.ID, now())
	wantReason(t, err, "GRANT_REFUSED")
	grant(t, r.s, id, token, "st-2", 1)
	_, err = r.s.ClusterFor(t.Context(), r.host.id, token.ID, now())
	wantReason(t, err, "COMMAND_NOT_FOUND")
	a, err := r.s.ClusterFor(t.Context(), r.site.id, token.ID, now())
	if err != nil || a.Ref != "prod" || a.Join != token.ID || string(a.Sealed) != "sealed prod" {
		t.Fatalf("%+v %v", a, err)
	}
	sent := decide(t, r.s, id, operation.Resulted{AgentID: r.site.id, CommandID: token.ID, Outcome: operation.OutcomeSucceeded})
	join := *sent.Command
	var spec fleetv1.CommandSpec
	if err := proto.Unmarshal(sent.Send[0].Spec, &spec); err != nil || spec.GetJoin().GetNodeName() != "m-1" || len(spec.GetJoin().GetCaHashes()) != 1 {
		t.Errorf("%v %v", &spec, err)
	}
	if join.Kind != operation.KindJoin || join.ExecutorID != r.host.id {
		t.Fatalf("the second command is %+v", join)
	}
	_, err = r.s.ClusterFor(t.Context(), r.site.id, token.ID, now())
	wantReason(t, err, "GRANT_REFUSED")
	grant(t, r.s, id, join, "st-1", 1)
	if a, err = r.s.ClusterFor(t.Context(), r.host.id, join.ID, now()); err != nil || a.Join != token.ID {
		t.Errorf("the join is made of %q (%v), want the token of %s", a.Join, err, token.ID)
	}
	if n := count(t, r.s, "SELECT count(*) FROM audit_log WHERE verb = 'GET_CLUSTER_ACCESS' AND target_id = 'm-1'"); n != 2 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func grant(t testing.TB, s *store.Store, operationID string, c operation.Command, stateID string, seq uint64) {
	t.Helper()
	a := decide(t, s, operationID, operation.GrantAsked{
		AgentID: c.ExecutorID, CommandID: c.ID, StateID: stateID, Seq: seq, Digest: c.Digest, BootID: "boot-1", Epoch: 1, Earlier: asksBefore(seq),
	})
	if !a.Decision.Grant {
		t.Fatalf("not granted: %+v", a.Decision.Refusal)
	}
}
