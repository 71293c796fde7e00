package storetest

import (
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
)

// caPEM is a CA as clusters have them.
func caPEM() []byte {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

func SetCluster(t testing.TB, s *store.Store, ref string) credentialstore.SealedCluster {
	t.Helper()
	c, err := s.Credentials.SetCluster(
		t.Context(),
		credentialstore.SealedCluster{Ref: ref, Server: "https://api:6443", CAPEM: caPEM(),
			Sealed: []byte("sealed " + ref)},
		"tester",
		Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clusterRig is a machine that names a cluster, with both agents that a join takes.
type clusterRig struct {
	Store      *store.Store
	Host, Site Enrolled
}

func NewClusterRig(t *testing.T) clusterRig {
	t.Helper()
	s := New(t)
	Register(t, s, "m-1")
	h := Enrol(t, s, agentstore.NewToken{TokenID: "t-host", MachineID: "m-1"})
	hello := h.Hello("st-1", "boot-1")
	hello.Capabilities = []string{"join"}
	Lease(t, s)
	Open(t, s, hello)
	site := Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	siteHello := site.Hello("st-2", "boot-2")
	siteHello.Capabilities = []string{"cluster"}
	Open(t, s, siteHello)
	Maintenance(t, s, "m-1")
	SetCluster(t, s, "prod")
	Exec(t, s,
		`UPDATE machines SET spec = spec || '{"target_cluster_ref": "prod", "site": "default"}' WHERE machine_id = 'm-1'`)
	return clusterRig{Store: s, Host: h, Site: site}
}

func Grant(t testing.TB, s *store.Store, operationID string, c operation.Command, stateID string, seq uint64) {
	t.Helper()
	a := Decide(t, s, operationID, operation.GrantAsked{
		AgentID: c.ExecutorID, CommandID: c.ID, StateID: stateID, Seq: seq, Digest: c.Digest, BootID: "boot-1", Epoch: 1,
		Earlier: AsksBefore(seq),
	})
	if !a.Decision.Grant {
		t.Fatalf("not granted: %+v", a.Decision.Refusal)
	}
}
