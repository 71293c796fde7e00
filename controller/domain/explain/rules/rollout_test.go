package rules_test

import (
	"github.com/ingot-metal/ingot/controller/domain/explain"
)

// faultsOfRollouts: what keeps a machine waiting that a rollout will come to.
var faultsOfRollouts = []fault{
	{"its turn in a rollout has not come", inRollout("RUNNING", "SOAKING"), "", explain.OnLimit,
		[]string{"its turn in rollout ro-1, wave 2 of 3", "SOAKING"}, "when its wave does", "ingot rollout get ro-1"},
	{"its rollout is paused", inRollout("PAUSED", "PAUSED_BY_GATE"), "", explain.OnOperator,
		[]string{"is paused (paused_by_gate)"}, "", "ingot rollout resume ro-1"},
	{"its rollout is not approved", inRollout("AWAITING_APPROVAL", "WAITING_FOR_APPROVAL"), "", explain.OnOperator,
		[]string{"second person"}, "", "ingot rollout approve ro-1"},
	{"a budget is full for a rollout", func(l *lab) {
		l.host().reboot()
		l.f.Op.Destructive = true
		l.look()
		l.f.Budget, l.f.Rollout = "budget racks: 2 of 2 slots of rack r42 are taken",
			&explain.Rollout{ID: "ro-1", State: "RUNNING", Wave: 2, Waves: 3}
	}, "", explain.OnLimit, []string{"it is part of rollout ro-1, wave 2 of 3"}, "when there is room",
		"ingot budget slots"},
}

func inRollout(state, waits string) func(*lab) {
	return func(l *lab) {
		l.host()
		l.f.Rollout = &explain.Rollout{ID: "ro-1", Digest: "5f3c", CreatedBy: "ann", State: state, WaitReason: waits, Wave: 2,
			At: 1, Waves: 3, Waiting: true}
	}
}
