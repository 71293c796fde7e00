package fleet_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Nothing runs on a blocked machine. One thing may start: the RMA that takes the flag off again.
func TestABlockedMachineRefusesEverything(t *testing.T) {
	started, refused := 0, 0
	for _, op := range fleet.OperationTypes() {
		for _, p := range phases {
			for _, traits := range []fleet.PlanTraits{{}, {Destructive: true}, {ReturnsFromRMA: true},
				{Destructive: true, ReturnsFromRMA: true}} {
				for _, c := range circumstances() {
					if c.deleted || !c.rma && !c.retired {
						continue
					}
					got := fleet.AdmitPlan(c.facts(p), op, traits)
					finishes := op == fleet.RMAType && traits.ReturnsFromRMA && !c.retired
					switch {
					case !finishes && (got == nil || got.Reason != "MACHINE_BLOCKED"):
						t.Fatalf("%s in %s, %+v, %+v: %+v", op, p, traits, c, got)
					case !finishes:
						refused++
					default:
						// It is held to every other rule.
						free := c
						free.rma = false
						want := expected(free, p, op, traits.Destructive)
						if reason := reasonOf(got); reason != want {
							t.Fatalf("finishing an RMA in %s, %+v, %+v: %q, want %q", p, traits, c, reason, want)
						}
						if got == nil {
							started++
						}
					}
				}
			}
		}
	}
	if started == 0 || refused == 0 {
		t.Errorf("%d started, %d refused", started, refused)
	}
}

func reasonOf(r *fleet.Refusal) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestOnlyAnAgentWithSSHRunsScripts(t *testing.T) {
	able, other, away := site("able", true, "provider:agent", "ssh"), site("other", true, "provider:agent"),
		site("away", false, "ssh")
	for name, c := range map[string]struct {
		candidates []fleet.Candidate
		want       string
	}{
		"nobody": {nil, ""}, "hosts do not": {[]fleet.Candidate{host("host", true, 0)}, ""},
		"without it":       {[]fleet.Candidate{other}, ""},
		"away":             {[]fleet.Candidate{away}, ""},
		"the one that can": {[]fleet.Candidate{host("host", true, 0), away, other, able}, "able"},
	} {
		got := ""
		if r := fleet.SiteForSSH(c.candidates); r != nil {
			got = r.AgentID
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
