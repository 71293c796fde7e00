package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

var phases = []fleet.Phase{fleet.FactoryReady, fleet.Ready, fleet.Maintenance}

// allowed is the table of operations and phases as it is documented, written down once more.
var allowed = map[fleet.OperationType]string{
	fleet.Reboot:           "READY MAINTENANCE",
	fleet.Reconfigure:      "READY MAINTENANCE",
	fleet.RunPlan:          "READY MAINTENANCE",
	fleet.Netboot:          "MAINTENANCE",
	fleet.Reimage:          "MAINTENANCE",
	fleet.JoinCluster:      "MAINTENANCE",
	fleet.Upgrade:          "MAINTENANCE",
	fleet.RMAType:          "MAINTENANCE",
	fleet.TestHardware:     "MAINTENANCE",
	fleet.Onboard:          "MAINTENANCE",
	fleet.Decommission:     "MAINTENANCE",
	fleet.ExitMaintenance:  "MAINTENANCE",
	fleet.EnterMaintenance: "FACTORY_READY READY MAINTENANCE",
	fleet.NodeTransition:   "FACTORY_READY READY MAINTENANCE",
}

// circumstance is everything besides the phase that may speak against an operation.
type circumstance struct{ deleted, rma, retired, busy, frozen, quarantined, fenced, attention bool }

func circumstances() []circumstance {
	var out []circumstance
	for bits := range 256 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		out = append(out, circumstance{bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7)})
	}
	return out
}

func (c circumstance) facts(p fleet.Phase) fleet.Facts {
	f := fleet.Facts{
		Phase: p, NodeState: fleet.Active, ActiveOperation: c.busy, Deleted: c.deleted, Freeze: freeze(c.frozen),
		Conditions: map[fleet.ConditionType]bool{fleet.RMA: c.rma, fleet.RetiredFlag: c.retired,
			fleet.NeedsIntervention: c.attention},
	}
	if c.quarantined {
		f.NodeState = fleet.Quarantined
	}
	if c.fenced {
		f.UnresolvedCommand = "cmd-1"
	}
	return f
}

// expected returns why an operation may not start; empty if it may.
func expected(c circumstance, p fleet.Phase, t fleet.OperationType, destructive bool) string {
	phaseOK := slices.Contains(strings.Fields(allowed[t]), string(p)) && (!destructive || p == fleet.Maintenance)
	changesTheMachine := t != fleet.EnterMaintenance && t != fleet.ExitMaintenance && t != fleet.NodeTransition
	for _, rule := range []struct {
		against bool
		reason  string
	}{
		{c.deleted, "MACHINE_DELETED"},
		{c.rma || c.retired, "MACHINE_BLOCKED"},
		{c.busy, "MACHINE_BUSY"},
		{!phaseOK, "WRONG_PHASE"},
		{c.frozen && changesTheMachine, "FLEET_FROZEN"},
		{c.quarantined && changesTheMachine, "MACHINE_QUARANTINED"},
		{c.fenced && changesTheMachine, "COMMAND_UNRESOLVED"},
	} {
		if rule.against {
			return rule.reason
		}
	}
	return ""
}

// A command that has ended without its evidence lets the same work begin again, and nothing else.
func TestAnUnresolvedCommandThatHasEnded(t *testing.T) {
	t.Parallel()
	f := fleet.Facts{Phase: fleet.Maintenance, UnresolvedCommand: "cmd-1", Repeatable: fleet.Reboot}
	if r := fleet.Admit(f, fleet.Reboot, false); r != nil {
		t.Errorf("the same again: %+v", r)
	}
	if r := fleet.Admit(f, fleet.Reimage, true); r == nil || r.Reason != "COMMAND_UNRESOLVED" {
		t.Errorf("other work: %+v", r)
	}
	f.Repeatable = ""
	if r := fleet.Admit(f, fleet.Reboot, false); r == nil || r.Reason != "COMMAND_UNRESOLVED" {
		t.Errorf("the same while the command may still act: %+v", r)
	}
}

func TestAdmit(t *testing.T) {
	admitted := 0
	for op := range allowed {
		for _, p := range phases {
			for _, destructive := range []bool{false, true} {
				for _, c := range circumstances() {
					got := ""
					if r := fleet.Admit(c.facts(p), op, destructive); r != nil {
						got = r.Reason
						if r.Message == "" || baremetalv1.Reason_value[r.Reason] == 0 {
							t.Errorf("refusal %+v", r)
						}
					}
					if want := expected(c, p, op, destructive); got != want {
						t.Fatalf("%s in %s, destructive %t, %+v: got %q, want %q", op, p, destructive, c, got, want)
					}
					if got == "" {
						admitted++
					}
				}
			}
		}
	}
	if admitted == 0 {
		t.Error("nothing was ever admitted")
	}
}

func TestEveryTypeIsKnown(t *testing.T) {
	types := fleet.OperationTypes()
	if len(types) != len(allowed) {
		t.Errorf("%d types, want %d", len(types), len(allowed))
	}
	for _, op := range types {
		if _, ok := baremetalv1.Operation_OperationType_value[string(op)]; !ok || !fleet.Known(op) || allowed[op] == "" {
			t.Errorf("%s is not a type of the API, or of this test", op)
		}
	}
	for name, n := range baremetalv1.Operation_OperationType_value {
		if n != 0 && !fleet.Known(fleet.OperationType(name)) {
			t.Errorf("%s of the API is not known", name)
		}
	}
	if fleet.Known("NO_SUCH") || fleet.Admit(fleet.Facts{Phase: fleet.Maintenance}, "NO_SUCH", false) == nil {
		t.Error("an unknown type is admitted")
	}
}

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func host(id string, live bool, silent time.Duration) fleet.Candidate {
	return fleet.Candidate{AgentID: id, Role: "host", Live: live, LastSeen: at.Add(-silent),
		Capabilities: []string{"reboot"}}
}

func site(id string, live bool, capabilities ...string) fleet.Candidate {
	return fleet.Candidate{AgentID: id, Role: "site", Live: live, LastSeen: at, Capabilities: capabilities}
}

func TestRoute(t *testing.T) {
	liveSite := site("site", true, "provider:fake")
	for name, c := range map[string]struct {
		candidates []fleet.Candidate
		outOfBand  bool
		want       string
	}{
		"nobody":                          {nil, false, ""},
		"the host":                        {[]fleet.Candidate{liveSite, host("host", true, 0)}, false, "host"},
		"a live host with old heartbeats": {[]fleet.Candidate{liveSite, host("host", true, time.Hour)}, false, "host"},
		"a host that was here just now":   {[]fleet.Candidate{liveSite, host("host", false, 29*time.Second)}, false, ""},
		"a host that is silent": {[]fleet.Candidate{liveSite, host("host", false, 30*time.Second)}, false,
			"site"},
		"a host that never came":           {[]fleet.Candidate{liveSite, {AgentID: "host", Role: "host"}}, false, "site"},
		"silent, and no site agent":        {[]fleet.Candidate{host("host", false, time.Hour)}, false, ""},
		"no host":                          {[]fleet.Candidate{liveSite}, false, "site"},
		"a site agent that is away":        {[]fleet.Candidate{site("site", false, "provider:fake")}, false, ""},
		"a site agent of another provider": {[]fleet.Candidate{site("site", true, "provider:other")}, false, ""},
		"the second site agent": {[]fleet.Candidate{site("one", false, "provider:fake"),
			site("two", true, "provider:fake")}, false, "two"},
		"out of band":                      {[]fleet.Candidate{host("host", true, 0), liveSite}, true, "site"},
		"out of band without a site agent": {[]fleet.Candidate{host("host", true, 0)}, true, ""},
		"the newer of two hosts": {[]fleet.Candidate{host("old", false, time.Hour),
			host("new", true, time.Second)}, false, "new"},
		"the live one of two hosts": {[]fleet.Candidate{host("gone", false, time.Second),
			host("here", true, 5*time.Second)}, false, "here"},
		"an installer is not asked": {[]fleet.Candidate{{AgentID: "i", Role: "installer", Live: true, LastSeen: at}},
			false, ""},
		"the host, whatever it is able to": {[]fleet.Candidate{{AgentID: "host", Role: "host", Live: true, LastSeen: at},
			liveSite}, false, "host"},
		"silent host and site that is away": {[]fleet.Candidate{host("host", false, time.Hour),
			site("site", false, "provider:fake")}, false, ""},
	} {
		got := ""
		if r := fleet.Route(c.candidates, "reboot", "fake", c.outOfBand, at); r != nil {
			got = r.AgentID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCanDo(t *testing.T) {
	h, s := host("host", true, 0), site("site", true)
	if !h.CanDo("reboot") || h.CanDo("repave") || !s.CanDo("repave") {
		t.Error("wrong capabilities")
	}
}

func freeze(frozen bool) (f fleet.Freeze) {
	if frozen {
		f = fleet.Freeze{Since: time.Unix(1, 0), Actor: "ann", Comment: "rack 42"}
	}
	return f
}

// TestARefusalOfAFrozenFleetSaysWhoFrozeItAndWhy: and speaks of a restored database only where one was restored.
func TestARefusalOfAFrozenFleetSaysWhoFrozeItAndWhy(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, f := range map[string]fleet.Freeze{
		"ann froze it: rack 42 is losing disks":      {Since: at, Actor: "ann", Comment: "rack 42 is losing disks"},
		"ann froze it, and gave no reason":           {Since: at, Actor: "ann"},
		"the database was restored from a backup":    {Since: at, Restored: true, Actor: "system"},
		"the fleet is frozen since 2026-03-01T12:00": {Since: at, Actor: "ann"},
	} {
		r := fleet.Admit(fleet.Facts{Phase: fleet.Ready, NodeState: fleet.Active, Freeze: f}, fleet.Reboot, false)
		if r == nil || !strings.Contains(r.Message, want) || !strings.Contains(r.Message, "`ingot server thaw`") {
			t.Errorf("want %q: %+v", want, r)
		}
		if restored := strings.Contains(r.Message, "restored"); restored != f.Restored {
			t.Errorf("speaks of a restored database: %t, want %t: %s", restored, f.Restored, r.Message)
		}
	}
}
