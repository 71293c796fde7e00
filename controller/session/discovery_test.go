package session_test

import (
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/session"
)

func TestADiscoveryOfASession(t *testing.T) {
	r := session.NewRegistry()
	one := session.New(t.Context(), session.Peer{AgentID: "a-1", Role: "site", Site: "r42", Discovers: true}, time.Now())
	for _, s := range []*session.Session{
		one, session.New(t.Context(), session.Peer{AgentID: "a-2", Role: "site", Site: "r43"}, time.Now()),
		session.New(t.Context(), session.Peer{AgentID: "a-3", Role: "host", Site: "r44", Discovers: true}, time.Now()),
	} {
		r.Add(s)
	}
	if r.OfSite("r42") != one || r.OfSite("r43") != nil || r.OfSite("r44") != nil || r.OfSite("") != nil {
		t.Error("another session is found")
	}

	one.Discovered(&fleetv1.BMCsDiscovered{DiscoveryId: "d-1"}) // without a discovery
	reports, end, ok := one.BeginDiscovery("d-1")
	if !ok {
		t.Fatal("it does not begin")
	}
	if _, _, again := one.BeginDiscovery("d-2"); again {
		t.Error("there are two at a time")
	}
	one.Discovered(&fleetv1.BMCsDiscovered{DiscoveryId: "d-0", Done: true})
	one.Discovered(&fleetv1.BMCsDiscovered{DiscoveryId: "d-1", Skipped: 7})
	if got := <-reports; got.GetSkipped() != 7 || len(reports) != 0 {
		t.Errorf("got %v, and %d more", got, len(reports))
	}
	for range 1000 { // more than is held must not block the session
		one.Discovered(&fleetv1.BMCsDiscovered{DiscoveryId: "d-1"})
	}
	end()
	one.Discovered(&fleetv1.BMCsDiscovered{DiscoveryId: "d-1"})
	if _, _, ok := one.BeginDiscovery("d-2"); !ok {
		t.Error("no other begins after the end")
	}
}
