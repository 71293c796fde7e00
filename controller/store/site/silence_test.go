package site_test

import (
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// quiet is a site with an agent, a machine without one, and a machine with an agent of its own. Both have a BMC.
type quiet struct {
	*testing.T

	s    *store.Store
	site storetest.Enrolled
	own  storetest.Enrolled
	// hello and ownHello are the sessions of the two agents.
	hello, ownHello sessionstore.Hello
}

func newQuiet(t *testing.T) *quiet {
	t.Helper()
	q := &quiet{T: t, s: storetest.New(t)}
	storetest.Lease(t, q.s)
	storetest.Register(t, q.s, "m-1")
	q.own = storetest.Live(t, q.s, "m-own")
	q.ownHello = q.own.Hello("st-own", "boot-own")
	storetest.Open(t, q.s, q.ownHello)
	q.site = storetest.Enrol(t, q.s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	q.connect("s-first")
	q.reports(true, "on", "m-1", "m-own")
	return q
}

func (q *quiet) connect(session string) {
	q.Helper()
	q.hello = q.site.Hello("st-site", "boot-site")
	q.hello.SessionID = session
	storetest.Open(q.T, q.s, q.hello)
}

// reports has the site's agent report of BMCs.
func (q *quiet) reports(reachable bool, power string, machines ...string) {
	q.Helper()
	r := sitestore.SiteReport{Site: "default", AgentID: q.site.ID, LeasesSame: true}
	for _, id := range machines {
		o := &fleetv1.BMCObservation{MachineId: id, Reachable: reachable, PowerState: power}
		if !reachable {
			o.Reason = "BMC_UNREACHABLE"
		}
		r.BMCs = append(r.BMCs, o)
	}
	if _, err := q.s.Sites.RecordSite(q.Context(), r, storetest.Now()); err != nil {
		q.Fatal(err)
	}
}

// judge evaluates the site as a controller does that calls an agent silent after a minute.
func (q *quiet) judge(now time.Time) {
	q.Helper()
	if err := q.s.Sites.UpdateSites(q.Context(), now.Add(-time.Minute), now); err != nil {
		q.Fatal(err)
	}
}

func (q *quiet) condition(id string, t fleet.ConditionType) *baremetalv1.Condition {
	q.Helper()
	for _, c := range storetest.Machine(q.T, q.s, id).GetStatus().GetConditions() {
		if c.GetType() == string(t) {
			return c
		}
	}
	return &baremetalv1.Condition{}
}

// is compares a condition with what it must be: its status and whether it is known.
func (q *quiet) is(when, id string, t fleet.ConditionType, status, known bool) {
	q.Helper()
	if c := q.condition(id, t); c.GetStatus() != status || c.GetKnown() != known || c.GetObservedAt() == nil {
		q.Errorf("%s: %s of %s is %v, want status %t, known %t", when, t, id, c, status, known)
	}
}

// TestSilenceOfASiteCountsOnlyWhileControllersListen: after a time without a controller, its agent has an hour to come back.
func TestSilenceOfASiteCountsOnlyWhileControllersListen(t *testing.T) {
	q := newQuiet(t)
	began := storetest.Now()
	if err := q.s.Sessions.EndSession(t.Context(), q.site.ID, q.hello.SessionID, began); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second ends a time without a controller that was longer than the gap
		if _, err := q.s.Incarnations.ExtendListening(t.Context(), "controller-1", time.Microsecond, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	q.judge(began.Add(6 * time.Second))
	q.is("within the hour", "m-1", fleet.BMCReachable, true, true)
	q.judge(began.Add(2 * time.Hour))
	q.is("after it", "m-1", fleet.BMCReachable, false, false)
}

// TestASilentSiteMakesItsObservationsUnknown until its agent reports them again.
func TestASilentSiteMakesItsObservationsUnknown(t *testing.T) {
	q := newQuiet(t)
	began := storetest.Now()
	if err := q.s.Sessions.EndSession(t.Context(), q.site.ID, q.hello.SessionID, began); err != nil {
		t.Fatal(err)
	}
	q.judge(began.Add(4 * time.Second))
	q.is("in the time of grace", "m-1", fleet.BMCReachable, true, true)
	q.judge(began.Add(6 * time.Second))
	q.is("silent", "m-1", fleet.BMCReachable, false, false)
	q.is("silent", "m-own", fleet.BMCReachable, true, true)
	q.is("silent", "m-own", fleet.Reachable, true, true)
	if c := q.condition(
		"m-1",
		fleet.BMCReachable,
	); c.GetObservedBy() != q.site.ID ||
		c.GetReason() != "SITE_AGENT_SILENT" {
		t.Errorf("silent: %v", c)
	}
	if p := storetest.Machine(t, q.s, "m-1").GetStatus().GetPowerState(); p != "unknown" {
		t.Errorf("silent: the power is %s", p)
	}
	before := storetest.Machine(t, q.s, "m-1").GetVersion()
	q.judge(began.Add(7 * time.Second))
	if after := storetest.Machine(t, q.s, "m-1").GetVersion(); after != before {
		t.Error("judged again, the machine changes")
	}
	q.back(before)
}

// back has the agent come back and report what was so before, and then something else.
func (q *quiet) back(before int64) {
	q.Helper()
	q.connect("s-second")
	now := storetest.Now()
	q.judge(now)
	q.is("connected, and nothing is reported yet", "m-1", fleet.BMCReachable, false, false)
	q.reports(true, "on", "m-1", "m-own")
	q.is("reported", "m-1", fleet.BMCReachable, true, true)
	m := storetest.Machine(q.T, q.s, "m-1")
	if p := m.GetStatus().GetPowerState(); p != "on" || m.GetVersion() <= before {
		q.Errorf("reported: the power is %s, version %d after %d", p, m.GetVersion(), before)
	}
	q.reports(false, "unknown", "m-1")
	q.is("no answer", "m-1", fleet.BMCReachable, false, true)
	v, err := q.s.Timelines.VerifyTimeline(q.Context(), "m-1")
	if err != nil || !v.GetOk() {
		q.Errorf("the history: %v, %v", v, err)
	}
}

// TestAMachineThatLosesItsAgentDuringASilence has no witness left.
func TestAMachineThatLosesItsAgentDuringASilence(t *testing.T) {
	q := newQuiet(t)
	began := storetest.Now()
	if err := q.s.Sessions.EndSession(t.Context(), q.site.ID, q.hello.SessionID, began); err != nil {
		t.Fatal(err)
	}
	q.judge(began.Add(6 * time.Second))
	if err := q.s.Sessions.RAIDEvent(t.Context(), sessionstore.EventKey{AgentID: q.own.ID, StateID: "st-own", Seq: 1},
		"m-own", "md0 lacks a disk", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := q.s.Sessions.EndSession(t.Context(), q.own.ID, q.ownHello.SessionID, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	later := began.Add(10 * time.Minute)
	if err := q.s.NodeStates.UpdateReachable(t.Context(), later.Add(-time.Minute), later); err != nil {
		t.Fatal(err)
	}
	if err := q.s.Sites.KeepSilent(t.Context(), later.Add(-time.Minute), later); err != nil {
		t.Fatal(err)
	}
	q.is("both silent", "m-own", fleet.BMCReachable, false, false)
	// The controller listened to the machine's own agent, and heard nothing.
	q.is("both silent", "m-own", fleet.Reachable, false, true)
	q.is("both silent", "m-own", fleet.RAIDDegraded, true, false)
	q.ownHello.SessionID = "s-own-again"
	storetest.Open(t, q.s, q.ownHello)
	q.is("its agent is back", "m-own", fleet.RAIDDegraded, true, true)
	q.is("its agent is back", "m-own", fleet.Reachable, true, true)
	q.is("its agent is back", "m-own", fleet.BMCReachable, false, false)
}
