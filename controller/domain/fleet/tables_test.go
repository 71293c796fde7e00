package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// TestWhichTypesHaveAPlan: all but the one that needs a plan named, and those that workflows stand for.
func TestWhichTypesHaveAPlan(t *testing.T) {
	for _, typ := range fleet.OperationTypes() {
		workflows := typ == fleet.Onboard || typ == fleet.Decommission
		if plan := fleet.DefaultPlan(typ) != ""; plan == (workflows || typ == fleet.RunPlan) {
			t.Errorf("%s: has a plan of its own: %t", typ, plan)
		}
	}
}

// TestAMachineOutOfUseSaysWhatBringsItBack: by its node state, or by the flag; only what removes it may start.
func TestAMachineOutOfUseSaysWhatBringsItBack(t *testing.T) {
	for name, c := range map[string]struct {
		facts fleet.Facts
		says  string
	}{
		"retired":  {fleet.Facts{MachineID: "m-7", NodeState: fleet.Retired}, "ingot node transition m-7 offline"},
		"removing": {fleet.Facts{MachineID: "m-7", NodeState: fleet.Removing}, "being removed"},
		"flagged": {fleet.Facts{MachineID: "m-7", NodeState: fleet.Active,
			Conditions: map[fleet.ConditionType]bool{fleet.RetiredFlag: true}}, "ingot flag m-7 Retired --off"},
		"without a name": {fleet.Facts{NodeState: fleet.Retired}, "ingot node transition MACHINE offline"},
	} {
		c.facts.Phase = fleet.Maintenance
		r := fleet.AdmitPlan(c.facts, fleet.Reboot, fleet.PlanTraits{})
		if r == nil || r.Reason != "MACHINE_BLOCKED" || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: %+v", name, r)
		}
		if r := fleet.AdmitPlan(c.facts, fleet.RunPlan, fleet.PlanTraits{Removes: true}); r != nil {
			t.Errorf("%s: what removes it is refused: %+v", name, r)
		}
	}
}

// TestTheNewestAgentOfAMachine: one with a session before one without, and of two without the one that was heard last.
func TestTheNewestAgentOfAMachine(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	agent := func(id string, live bool, seen time.Time) fleet.Candidate {
		return fleet.Candidate{AgentID: id, Role: "host", Live: live, LastSeen: seen}
	}
	for name, c := range map[string]struct{ a, b fleet.Candidate }{
		"both away":      {agent("old", false, at), agent("new", false, at.Add(1))},
		"both there":     {agent("old", true, at), agent("new", true, at.Add(1))},
		"one of them is": {agent("old", false, at.Add(1)), agent("new", true, at)},
	} {
		for _, order := range [][]fleet.Candidate{{c.a, c.b}, {c.b, c.a}} {
			if got := fleet.Host(order); got == nil || got.AgentID != "new" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// TestAStepWaitsForAHostThatIsBarelySilent: the site's agent takes it over when the host has been silent for long
// enough, and out-of-band work at once.
func TestAStepWaitsForAHostThatIsBarelySilent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	site := fleet.Candidate{AgentID: "site", Role: "site", Live: true, Capabilities: []string{"provider:fake"}}
	host := func(live bool, silent time.Duration) fleet.Candidate {
		return fleet.Candidate{AgentID: "host", Role: "host", Live: live, LastSeen: now.Add(-silent)}
	}
	for name, c := range map[string]struct {
		candidates []fleet.Candidate
		outOfBand  bool
		want       string
	}{
		"there":             {[]fleet.Candidate{host(true, time.Hour), site}, false, "host"},
		"silent for long":   {[]fleet.Candidate{host(false, fleet.HandOverAfter), site}, false, "site"},
		"barely silent":     {[]fleet.Candidate{host(false, fleet.HandOverAfter-1), site}, false, ""},
		"silent, no site":   {[]fleet.Candidate{host(false, time.Hour)}, false, ""},
		"none":              {[]fleet.Candidate{site}, false, "site"},
		"out of band":       {[]fleet.Candidate{host(true, 0), site}, true, "site"},
		"out of band, none": {[]fleet.Candidate{host(true, 0)}, true, ""},
	} {
		got := ""
		if a := fleet.Route(c.candidates, "reboot", "fake", c.outOfBand, now); a != nil {
			got = a.AgentID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
