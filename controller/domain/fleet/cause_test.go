package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// cures is the cure table of the design, written down once more: what of a success takes which cause away.
var cures = map[fleet.Cause]string{
	fleet.CauseQuarantine:  "release",
	fleet.CauseUnknown:     "settlement",
	fleet.CauseMemory:      "work",
	fleet.CauseProvider:    "provider",
	fleet.CauseWorkflow:    "workflow same",
	fleet.CauseReimage:     "image",
	fleet.CauseUpgrade:     "image same",
	fleet.CauseJoin:        "join image same",
	fleet.CauseReconfigure: "same image",
	fleet.CausePlan:        "same image",
	fleet.CauseRMA:         "same",
	fleet.CauseReboot:      "boot image same",
	fleet.CauseNetboot:     "same boot image",
	fleet.CauseHardware:    "same",
	fleet.CauseRecord:      "work",
}

var allCures = []fleet.Cure{
	fleet.CuredByImage, fleet.CuredByBoot, fleet.CuredByJoin, fleet.CuredBySame, fleet.CuredByWork,
	fleet.CuredBySettlement,
	fleet.CuredByRelease, fleet.CuredByProvider, fleet.CuredByWorkflow,
}

// Every cause against every cure, with the same and with another subject.
func TestEachCauseIsCuredByItsOwnCureAlone(t *testing.T) {
	if len(cures) != len(fleet.Causes()) {
		t.Fatalf("%d causes, %d in this test", len(fleet.Causes()), len(cures))
	}
	for _, cause := range fleet.Causes() {
		for _, cure := range allCures {
			for _, same := range fleet.Causes() {
				for _, subject := range []string{"a", "b"} {
					h := fleet.Happened{Cures: []fleet.Cure{cure}, Same: same, Subject: subject}
					want := slices.Contains(strings.Fields(cures[cause]), string(cure))
					switch cure {
					case fleet.CuredBySame:
						want = want && same == cause && subject == "a"
					case fleet.CuredBySettlement:
						want = want && subject == "a"
					}
					if got := fleet.Cured(cause, "a", h); got != want {
						t.Errorf("%s by %s of %s about %q: cured %t, want %t", cause, cure, same, subject, got, want)
					}
				}
			}
		}
		if !fleet.Cured(cause, "a", fleet.Happened{Cures: []fleet.Cure{fleet.CuredByAdmin}}) {
			t.Errorf("an admin cannot clear %s", cause)
		}
		if fleet.Cured(cause, "", fleet.Happened{}) {
			t.Errorf("nothing cures %s", cause)
		}
	}
}

// Every type of operation that fails leaves a cause, and every cause has a cure besides an admin's word.
func TestEveryFailureHasACure(t *testing.T) {
	for _, op := range fleet.OperationTypes() {
		cause := fleet.CauseOf(op)
		if cause == "" || len(cause.Cures()) == 0 {
			t.Errorf("a failed %s leaves %q, which nothing cures", op, cause)
		}
	}
}
