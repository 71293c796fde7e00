package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// faultsOfControllers: those that are there, and begin with nothing.
var faultsOfControllers = []fault{
	{"workers fail", func(l *lab) {
		l.host().reboot()
		l.f.Controllers, l.now = 1, l.now.Add(time.Minute)
		l.f.Op.WakeAt = l.now.Add(time.Second)
	}, "", explain.OnLimit, []string{"workers fail"}, "as soon as one works", "ingot server info"},
}

// TestNotStarted: an operation that no controller begins with is not about to begin, even where its next look is put
// off again and again.
func TestNotStarted(t *testing.T) {
	for _, c := range []struct {
		after       time.Duration
		controllers int
		rule, says  string
		on          explain.Party
	}{
		{time.Second, 1, "pending", "about to go on", explain.OnNobody},
		{time.Minute, 1, "not-started", "workers fail", explain.OnLimit},
		{time.Minute, 0, "not-started", "no controller holds its lease", explain.OnLimit},
	} {
		l := newLab(t).host().reboot()
		l.now = l.now.Add(c.after)
		l.f.Op.WakeAt, l.f.Controllers = l.now.Add(time.Second), c.controllers
		e := l.explain()
		if e.Rule != c.rule || e.WaitsOn != c.on || !strings.Contains(everything(e), c.says) {
			t.Errorf("after %s: rule %s on %s: %s", c.after, e.Rule, e.WaitsOn, everything(e))
		}
	}
}

// TestOnlyTheSiteCanAct: a machine of another provider has no agent of its own, and is not waiting for one.
func TestOnlyTheSiteCanAct(t *testing.T) {
	l := newLab(t)
	l.f.Machine.Spec.Provider, l.f.Machine.Spec.BmcEndpoint = "fake", ""
	l.gone(siteID).reboot().look()
	if e := l.explain(); e.Cause.Reason != "SITE_AGENT_SILENT" || e.WaitsOn != explain.OnAgent {
		t.Errorf("%s on %s: %s", e.Cause.Reason, e.WaitsOn, everything(e))
	}
}

// TestThirdFailedInstall: the answer names what failed and the ways out.
func TestThirdFailedInstall(t *testing.T) {
	l := newLab(t).installing().fails("DISK_WRITE_ERROR", "write /dev/vda: input/output error")
	l.f.Machine.Status.NodeState = baremetalv1.NodeState_NODE_STATE_INSTALL_FAILED
	l.f.Machine.Status.LastInstallError = "DISK_WRITE_ERROR: write /dev/vda: input/output error"
	e := l.explain()
	if e.Cause.Reason != "INSTALL_ATTEMPTS_EXHAUSTED" || e.OperationID != "op-1" ||
		!strings.Contains(everything(e), "the disk refuses writes") {
		t.Errorf("%s of %s: %s", e.Cause.Reason, e.OperationID, everything(e))
	}
	offered := ""
	for _, a := range e.Actions {
		offered += a.Command + "\n"
	}
	if !strings.Contains(offered, "ingot node transition m-1 pending --force") ||
		!strings.Contains(offered, "ingot reimage m-1 --image debian-12") {
		t.Errorf("offered:\n%s", offered)
	}
}

// TestNobodyLooksAtAFrozenFleet: what stopped first is said first, and the freeze beside it.
func TestNobodyLooksAtAFrozenFleet(t *testing.T) {
	l := newLab(t).host().reboot().look()
	l.f.Freeze = fleet.Freeze{Since: l.now, WentBack: true, Comment: "it lacks beat 3"}
	l.now = l.f.Op.WakeAt.Add(time.Minute)
	e := l.explain()
	if said := everything(e); e.Rule != "nobody-looks" || !strings.Contains(said, "DATABASE_WENT_BACK") {
		t.Errorf("rule %s: %s", e.Rule, said)
	}
	if !slices.ContainsFunc(e.Actions, func(a explain.Action) bool {
		return strings.HasPrefix(a.Command, "ingot server thaw")
	}) {
		t.Errorf("offers %v", e.Actions)
	}
}
