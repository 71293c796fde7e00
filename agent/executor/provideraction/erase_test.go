package provideraction_test

import (
	"context"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestARegionThatErasesByItself: a region that erases whatever it releases never shows Disk erasing for an ordered
// erasure, and replaces its methods. It erases once, and the evidence is of the method that was used.
func TestARegionThatErasesByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg    maastest.Config
		action string
		method string
		reason baremetalv1.Reason
	}{
		"securely":       {maastest.Config{EraseOnRelease: true}, "erase", "maas-secure-erase-or-overwrite", 0},
		"by overwriting": {maastest.Config{EraseOnRelease: true, NoSecureErase: true}, "erase", "maas-overwrite", 0},
		"quickly": {maastest.Config{EraseOnRelease: true, QuickErase: true}, "erase", "",
			baremetalv1.Reason_MAAS_REFUSED},
		"when released": {maastest.Config{EraseOnRelease: true}, "release", "", 0},
		"only if asked": {maastest.Config{QuickErase: true}, "erase", "maas-secure-erase-or-overwrite", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRigWith(t, c.cfg)
			id := r.add(maastest.Machine{Status: ms.Deployed})
			out := r.do(c.action, nil)
			if want := c.reason; out.Reason != want || (out.Outcome == fleetv1.CommandResult_SUCCEEDED) != (want == 0) {
				t.Fatalf("%v %v %q", out.Outcome, out.Reason, out.Message)
			}
			if got := out.Evidence[evidence.EraseMethod]; got != c.method {
				t.Errorf("the evidence says %q, want %q", got, c.method)
			}
			erased := 1
			if c.reason != 0 {
				erased = 0
			}
			if m, _ := r.region.Get(id); m.Erased() != erased {
				t.Errorf("erased %d times", m.Erased())
			}
		})
	}
}

// TestAFailureAfterTheCommitIsNoReasonToEraseAgain: MAAS answers 503 as well when it has begun to erase and could not
// switch the machine. The erasure failed, once.
func TestAFailureAfterTheCommitIsNoReasonToEraseAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deployed, FailErase: []string{"no power", "no power", "no power"}})
	r.region.Fail(maastest.Fault{Op: "POST release", Kind: maastest.BusyAfter, Times: -1})
	if out := r.do("erase", nil); out.Outcome != fleetv1.CommandResult_FAILED ||
		out.Reason != baremetalv1.Reason_MAAS_FAILED {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
	if n := len(r.region.Requests("POST release")); n != 1 {
		t.Errorf("asked to release %d times", n)
	}
}

// TestACancelWhileMAASIsAsked: a cancel that comes while the request is made stops what the request has begun.
func TestACancelWhileMAASIsAsked(t *testing.T) {
	t.Parallel()
	for action, c := range map[string]struct {
		op, after string
		start     ms.Status
	}{
		"deploy": {"POST deploy", "Allocated", ms.Ready}, "commission": {"POST commission", "New", ms.New},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.add(maastest.Machine{Status: c.start, Stuck: true})
			s := spec(action, nil)
			r.prepare(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			r.region.Before(c.op, func() { cancel(executor.ErrCanceled) })
			out, err := r.exec.Execute(ctx, r.job(s, t.Context()))
			if err != nil || out.Outcome != fleetv1.CommandResult_CANCELED {
				t.Fatalf("%v %v %v %q", err, out.Outcome, out.Reason, out.Message)
			}
			if n := r.region.Acted("POST abort"); n != 1 {
				t.Errorf("aborted %d times: %q", n, out.Message)
			}
			testkit.Eventually(t, patience, func() bool { return r.status() == c.after }, "after the abort it is not %s",
				c.after)
		})
	}
}

// TestAnErasureIsNotMadeAgain: a command whose time was up while MAAS erased is followed by one that sees the erasure
// in MAAS's log. A machine that was used since, or erased by another client or quickly, is erased again.
func TestAnErasureIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		since   func(*rig)
		params  map[string]string
		erased  int
		between time.Duration
	}{
		"in time":           {erased: 1},
		"while MAAS erases": {between: 30 * time.Millisecond, erased: 1},
		"deployed and released": {since: func(r *rig) {
			r.must("deploy", nil)
			r.must("wait_deployed", nil)
			r.must("release", nil)
		}, erased: 2},
		"tested since": {since: func(r *rig) { r.must("rescue_mode", nil); r.must("exit_rescue_mode", nil) },
			erased: 2},
		"by a quick and a full wish": {params: map[string]string{"quick_erase": "true", "secure_erase": "true"}, erased: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			id := r.add(maastest.Machine{Status: ms.Deployed})
			s := spec("erase", c.params)
			r.prepare(s)
			limit := patience
			if c.between > 0 {
				limit = c.between
				r.region.Change(id, func(m *maastest.Machine) { m.StuckIn = ms.DiskErasing })
			}
			if out, err := r.execute(s, limit); err != nil ||
				(out.Outcome == fleetv1.CommandResult_SUCCEEDED) != (c.between == 0) {
				t.Fatalf("%+v, %v", out, err)
			}
			r.region.Change(id, func(m *maastest.Machine) { m.StuckIn = 0 })
			if c.since != nil {
				c.since(r)
			}
			if got := r.must("erase", nil)[evidence.EraseMethod]; got != "maas-secure-erase-or-overwrite" {
				t.Errorf("the evidence says %q", got)
			}
			if m, _ := r.region.Get(id); m.Erased() != c.erased {
				t.Errorf("erased %d times, want %d", m.Erased(), c.erased)
			}
		})
	}
}
