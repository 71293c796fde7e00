package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

var witnesses = map[fleet.Witness]string{
	fleet.WitnessMachine: "the machine's own agent, else the agent of its site",
	fleet.WitnessSite:    "the agent of its site",
	fleet.WitnessAgent:   "the machine's own agent",
	fleet.WitnessRecord:  "the controller's own record",
}

var silences = map[fleet.Aged]string{
	fleet.SilenceUnknown: "unknown: `status` and `known` are false",
	fleet.SilenceKeeps:   "keeps its `status`, and `known` is false: silence heals no fault",
	fleet.SilenceNever:   "never ages",
}

const aboutConditions = `A condition is true, false or unknown. It is unknown while its witness is silent: ` + "`observed_at`" + `
and ` + "`observed_by`" + ` name the last observation. In a filter each machine has one value: true follows ` +
	"`status`" + `, false
means known to be false, and a condition that was never reported is false.

A site is silent when each of its agents has been without a session for 5 s or has missed three heartbeats, and the
controller has listened all the time. Machines with a live agent of their own do not depend on their site's agent. The
others that would be IDLE are ATTENTION with ` + "`NOT_OBSERVED`" + `; their nodes stay ` + "`active`" + `. The silence is
one event (` + "`site.silent`, later `site.heard`" + `) and one entry of ` + "`ingot status`" + ` and of
` + "`ingot why --filter state=ATTENTION`" + `, with no event for each machine.

When the agent is back, its session makes known again what no probe observes. What the agent reads from BMCs, probes and
providers is known again with its next report. The power state of a machine ages as BMCReachable does.
`

func TestDocumentShowsConditions(t *testing.T) {
	var b strings.Builder
	b.WriteString(aboutConditions + "\n| condition | witness | while the witness is silent |\n|---|---|---|\n")
	for _, c := range fleet.ConditionTypes() {
		witness, silence, _ := fleet.Aging(c)
		if witnesses[witness] == "" || silences[silence] == "" {
			t.Errorf("%s: %q and %q are not described", c, witness, silence)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c, witnesses[witness], silences[silence])
	}
	document.Check(t, "conditions.md", "Conditions", b.String())
}
