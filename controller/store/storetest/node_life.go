package storetest

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// MAASMachine is a machine of MAAS that is in service and in maintenance.
//
// It returns the agent of its site.
func MAASMachine(t *testing.T, s *store.Store) string {
	t.Helper()
	if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1",
		Spec: &baremetalv1.MachineSpec{Provider: "maas", Site: "lab"}}, "tester", Now()); err != nil {
		t.Fatal(err)
	}
	site := Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "lab"}).ID
	Says(t, s, site, maasstatus.Deployed, "abc", "")
	a := Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	Lease(t, s)
	Open(t, s, a.Hello("st-1", "boot-1"))
	Maintenance(t, s, "m-1")
	if got := State(t, s, "m-1"); got != "active" {
		t.Fatalf("the node is %s", got)
	}
	return site
}

// Says lets the site's agent report what MAAS shows.
func Says(t *testing.T, s *store.Store, site string, status maasstatus.Status, system, message string) {
	t.Helper()
	o := &fleetv1.ProviderObservation{
		MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(status),
		StatusName: fmt.Sprint(status), SystemId: system, StatusMessage: message,
	}
	report := sitestore.SiteReport{Site: "lab", AgentID: site, LeasesSame: true,
		Providers: []*fleetv1.ProviderObservation{o}}
	if _, err := s.Sites.RecordSite(t.Context(), report, Now()); err != nil {
		t.Fatal(err)
	}
}
