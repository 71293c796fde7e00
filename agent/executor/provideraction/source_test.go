package provideraction_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestWhatMAASIsToldOfIsCommissionedByUs: MAAS commissions what an administrator adds at once, by scripts of its own
// choice, unless that is declined (maas/maas, api/machines.py, MachinesHandler.create).
func TestWhatMAASIsToldOfIsCommissionedByUs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must("create", nil)
	if got := r.status(); got != "New" {
		t.Errorf("the machine is %s", got)
	}
	r.must("commission", map[string]string{"testing_scripts": "none"})
	asked := r.region.Requests("POST commission")
	if len(asked) != 1 || !asked[0].Acted || asked[0].Form.Get("testing_scripts") != "none" {
		t.Errorf("commissioned by %+v", asked)
	}
}

// TestSwitchingOnDeploysNothing: MAAS deploys an allocated machine that is switched on (models/node.py, Node.start).
func TestSwitchingOnDeploysNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []ms.Status{ms.Allocated, ms.Ready} {
		r := newRig(t)
		r.add(maastest.Machine{Status: s})
		out := r.do("power_on", nil)
		if out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != baremetalv1.Reason_MAAS_STATUS_CONFLICT {
			t.Errorf("from %d: %v %v %q", s, out.Outcome, out.Reason, out.Message)
		}
		if row, _ := ms.Of(s); r.status() != row.Name || len(r.region.Requests("POST power_on")) != 0 {
			t.Errorf("the machine is %s", r.status())
		}
	}
}

// TestWhatMAASTakesBackIsOver: MAAS commits a request, cannot switch the machine, and takes the request back. That is
// seen at once, and the next try begins anew.
func TestWhatMAASTakesBackIsOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, op string
		start      ms.Status
		reason     baremetalv1.Reason
	}{
		{"commission", "POST commission", ms.New, baremetalv1.Reason_MAAS_FAILED},
		{"deploy", "POST deploy", ms.Ready, baremetalv1.Reason_MAAS_FAILED},
		{"release", "POST release", ms.Deployed, baremetalv1.Reason_MAAS_FAILED},
		// MAAS answers with 409, once the machine is in Failed disk erasing.
		{"erase", "POST release", ms.Deployed, baremetalv1.Reason_MAAS_STATUS_CONFLICT},
	} {
		t.Run(c.action, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.add(maastest.Machine{Status: c.start})
			r.region.Fail(maastest.Fault{Op: c.op, Kind: maastest.Revert})
			if out := r.do(c.action, nil); out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != c.reason {
				t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
			}
			r.must(c.action, nil)
			if n := r.region.Acted(c.op); n != 1 {
				t.Errorf("acted %d times", n)
			}
		})
	}
}

// TestWhatSomebodyElseDeployedIsNotOurs: nothing that waits for a deployment, or judges one, takes another's for ours.
func TestWhatSomebodyElseDeployedIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]maastest.Machine{
		"another user's":                 {Owner: "eve"},
		"another program's with our key": {Annotations: map[string]string{}},
		"another machine's":              {Annotations: map[string]string{"ingot-machine": "m-2"}},
	} {
		for _, action := range []string{"wait_deployed", "classify_failure", "recover_deploy", "hardware_sync",
			"wait_hardware_sync"} {
			t.Run(name+"/"+action, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				m.Status, m.Series, m.HWSync = ms.Deployed, "noble", true
				r.add(m)
				out := r.do(action, nil)
				if out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != baremetalv1.Reason_MAAS_STATUS_CONFLICT {
					t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
				}
			})
		}
	}
}

// TestFailedTestsAreNotReleased: MAAS tests deployed machines too. A machine whose tests have failed then is still in
// use, and MAAS does not release it.
func TestFailedTestsAreNotReleased(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.FailedTesting, Series: "noble"})
	if out := r.do("release", nil); out.Outcome != fleetv1.CommandResult_FAILED ||
		out.Reason != baremetalv1.Reason_MAAS_STATUS_CONFLICT {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
	r.must("override_failed_testing", nil)
	r.must("release", nil)
}
