package site_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestTheSiteKnowsWhichSystemIsTheMachine: a site's agent gets the values that distinguish a machine behind one BMC, by
// the newest inventory, else by what an installer has said.
func TestTheSiteKnowsWhichSystemIsTheMachine(t *testing.T) {
	s := storetest.New(t)
	storetest.Exec(t, s, `INSERT INTO sites (site, segments) VALUES ('lab', '[]')`)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
			Provider: "agent", Site: "lab", BmcEndpoint: "redfish://10.20.0.9/redfish/v1/Systems/" + id,
		}}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	storetest.Exec(t, s, `INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document) VALUES
		('m-1', now() - interval '1 day', 'a', 'old', '{"system": {"uuid": "u-old", "serial": "s-old"}, "os": {"firmware_is": "uefi"}}'),
		('m-1', now(), 'a', 'new', '{"system": {"uuid": "u-1", "serial": "s-1"}, "os": {"firmware_is": "bios"}}'),
		('m-2', now(), 'a', 'new', '{"system": {"uuid": "u-2"}, "os": {"firmware_is": "uefi"}}')`)
	storetest.Exec(
		t,
		s,
		`INSERT INTO node_reports (machine_id, mac, system_uuid, serial_number, installation_status, installation_percent, reported_at) VALUES
		('m-2', '02:00:00:00:00:02', 'u-said', 's-said', 'complete', 100, now()), ('m-3', '02:00:00:00:00:03', 'u-3', 's-3', 'complete', 100, now())`,
	)
	doc, err := s.Sites.SiteDocument(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	type marks struct {
		uuid, serial string
		bios         bool
	}
	want := map[string]marks{"m-1": {"u-1", "s-1", true}, "m-2": {"u-2", "s-said", false}, "m-3": {"u-3", "s-3", false}}
	for _, b := range doc.GetBmcs() {
		if got := (marks{b.GetSystemUuid(), b.GetSerialNumber(), b.GetBios()}); got != want[b.GetMachineId()] {
			t.Errorf("%s: %+v, want %+v", b.GetMachineId(), got, want[b.GetMachineId()])
		}
	}
	if len(doc.GetBmcs()) != len(want) {
		t.Errorf("%d BMCs", len(doc.GetBmcs()))
	}
}

// TestTheSiteKnowsTheRegisteredSerialNumber: with it a look at MAAS sees other hardware under a machine's addresses.
func TestTheSiteKnowsTheRegisteredSerialNumber(t *testing.T) {
	s := storetest.New(t)
	storetest.Exec(t, s, `INSERT INTO sites (site, segments) VALUES ('lab', '[]')`)
	for id, serial := range map[string]string{"m-1": "SN-1", "m-2": ""} {
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
			Provider: "maas", Site: "lab", Serial: serial, MacAddresses: []string{"52:54:00:00:00:0" + id[2:]},
		}}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	doc, err := s.Sites.SiteDocument(t.Context(), "lab")
	if err != nil || len(doc.GetProviders()) != 2 {
		t.Fatalf("%v, %v", doc.GetProviders(), err)
	}
	if one, two := doc.GetProviders()[0].GetSerial(), doc.GetProviders()[1].GetSerial(); one != "SN-1" || two != "" {
		t.Errorf("serial numbers %q and %q", one, two)
	}
}

// TestAProbeMovesAMachineWithoutAnAgent, and no other, nor one of another site.
func TestAProbeMovesAMachineWithoutAnAgent(t *testing.T) {
	s := storetest.New(t)
	storetest.Exec(t, s, `INSERT INTO sites (site, segments) VALUES ('lab', '[]')`)
	for _, id := range []string{"m-1", "m-2"} {
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{
			Provider: "agent", Site: "lab",
		}}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	storetest.Exec(t, s, `UPDATE machines SET agentless = (machine_id = 'm-1'), node_state = 'active'`)
	report := func(site string, answers bool) {
		t.Helper()
		r := sitestore.SiteReport{Site: site, AgentID: "a", LeasesSame: true}
		for _, id := range []string{"m-1", "m-2"} {
			r.Probes = append(r.Probes, &fleetv1.ProbeObservation{MachineId: id, Answers: answers, By: "open"})
		}
		if _, err := s.Sites.RecordSite(t.Context(), r, storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	state := func(id string) (string, *baremetalv1.Condition) {
		st := storetest.Machine(t, s, id).GetStatus()
		for _, c := range st.GetConditions() {
			if c.GetType() == "Reachable" {
				return st.GetNodeState().String(), c
			}
		}
		return st.GetNodeState().String(), nil
	}
	report("lab", true)
	if n, c := state("m-1"); n != "NODE_STATE_ACTIVE" || !c.GetStatus() || c.GetReason() != "ProbeAnswered" {
		t.Errorf("after an answer: %s, %v", n, c)
	}
	report("elsewhere", false)
	if _, c := state("m-1"); !c.GetStatus() {
		t.Errorf("another site's word counts: %v", c)
	}
	if err := s.NodeStates.UpdateReachable(t.Context(), storetest.Now(), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if n, c := state("m-1"); n != "NODE_STATE_ACTIVE" || !c.GetStatus() {
		t.Errorf("heartbeats are missed of an agent that is not there: %s, %v", n, c)
	}
	report("lab", false)
	if n, c := state("m-1"); n != "NODE_STATE_OFFLINE" || c.GetStatus() || c.GetReason() != "ProbeSilent" {
		t.Errorf("after silence: %s, %v", n, c)
	}
	report("lab", true)
	if n, _ := state("m-1"); n != "NODE_STATE_ACTIVE" {
		t.Errorf("after an answer again: %s", n)
	}
	if _, c := state("m-2"); c != nil {
		t.Errorf("a machine with an agent is moved by a probe: %v", c)
	}
}
