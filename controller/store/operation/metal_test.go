package operation_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestReimageThroughTheStore walks a reimage of an empty machine through the tables: assignment, site, vouching,
// identity, and the proof by the new system. Then with the controller killed at each stage, before, in and after the
// transaction of every decision, and with the site's agent killed before every event.
func TestReimageThroughTheStore(t *testing.T) {
	for _, crash := range []string{"", "store.before-apply", "store.before-commit", "store.after-commit"} {
		for _, siteDies := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%s,site=%v", crash, siteDies), func(t *testing.T) {
				t.Parallel()
				r := storetest.NewMetalRig(t)
				r.Crash, r.SiteDies = crash, siteDies
				r.Reimage()
				if crash != "" && r.Crashes < 10 {
					t.Errorf("only %d crashes", r.Crashes)
				}
			})
		}
	}
}

// TestSecondKey: the same key gets the same certificate; another one waits, and is contested by a sign of life of the
// first, or takes its place after its silence.
func TestSecondKey(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")}).GetOperationId()
	r.Decide(op, operation.Evaluate{})
	token := r.Applied().GetAssignments()[0].GetToken()
	if _, err := r.Vouch("another token", "key", storetest.Now()); err == nil {
		t.Error("a wrong boot token was taken")
	}
	first, err := r.Vouch(token, "key", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Vouch(token, "key", storetest.Now()); err != nil ||
		string(again.ChainPEM) != string(first.ChainPEM) || again.AgentID != first.AgentID {
		t.Errorf("the same key got %+v (%v)", again, err)
	}
	at := storetest.Now()
	if v, err := r.Vouch(token, "other", at); err != nil || !v.Waits {
		t.Fatalf("a second key got %+v (%v)", v, err)
	}
	if v, err := r.Vouch(token, "other", at.Add(14*time.Second)); err != nil || !v.Waits {
		t.Errorf("a second key got %+v (%v) before the first one's time was up", v, err)
	}
	second, err := r.Vouch(token, "other", at.Add(15*time.Second))
	if err != nil || second.AgentID == "" || len(second.Replaced) != 1 {
		t.Fatalf("after the silence of the first, the second got %+v (%v)", second, err)
	}
	r.Installer(second, "boot-2")
	at = storetest.Now()
	if v, err := r.Vouch(token, "third", at.Add(-5*time.Second)); err != nil || !v.Waits {
		t.Fatalf("a third key got %+v (%v)", v, err)
	}
	if v, err := r.Vouch(token, "third", at); err != nil || !v.Contested {
		t.Errorf("a third key got %+v (%v) while the second one's owner lives", v, err)
	}
}

// TestPowerOffLiftsAFence: what was granted to a machine that is off runs no more.
func TestPowerOffLiftsAFence(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")}).GetOperationId()
	r.Decide(op, operation.Evaluate{})
	v := r.Applied()
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})
	vouched, err := r.Vouch(v.GetAssignments()[0].GetToken(), "key", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	inst := r.Installer(vouched, "boot-ram")
	r.Grant(op, inst, "st-boot-ram", "boot-ram")
	r.Decide(op, operation.Quarantine{Reason: "CLONE_DETECTED", Message: "for the test"})
	if storetest.Machine(t, r.Store, "m-1").GetStatus().GetUnresolvedCommandId() == "" {
		t.Fatal("the machine is not fenced")
	}
	saw := func(state string, at time.Time) {
		t.Helper()
		_, err := r.Store.RecordSite(t.Context(), sitestore.SiteReport{Site: "lab", AgentID: r.Site.ID, LeasesSame: true,
			BMCs: []*fleetv1.BMCObservation{{
				MachineId: "m-1", Reachable: true, PowerState: state, SeenAt: timestamppb.New(at),
			}}}, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	saw("off", storetest.Now().Add(-time.Hour))
	saw("on", storetest.Now())
	if storetest.Machine(t, r.Store, "m-1").GetStatus().GetUnresolvedCommandId() == "" {
		t.Fatal("an old power-off, or a machine that is on, lifted the fence")
	}
	saw("off", storetest.Now().Add(time.Second))
	m := storetest.Machine(t, r.Store, "m-1")
	if m.GetStatus().GetUnresolvedCommandId() != "" || m.GetStatus().GetPowerState() != "off" ||
		storetest.Condition(m, fleet.BMCReachable) == nil {
		t.Errorf("the machine is %v", m.GetStatus())
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		changes, err := r.Store.Reconcile(t.Context(), "", storetest.Now().Add(-time.Hour), 10)
		return err == nil && len(changes.Machines) == 1 && proto.Equal(changes.Machines[0], m)
	}, "the reconciler does not see the machine as it is: %v", m)
}

// TestConsoleOfAnotherSiteIsNotKept: a site's agent writes to the operations of its own machines and to no others.
func TestConsoleOfAnotherSiteIsNotKept(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")}).GetOperationId()
	for seq, site := range []string{"elsewhere", "lab"} {
		k := sessionstore.EventKey{AgentID: r.Site.ID, StateID: "st-site", Seq: uint64(seq) + 1}
		for range 2 { // a repeat of a number that was seen does nothing
			if err := r.Store.ConsoleEvent(t.Context(), k, site, op, []byte("from "+site), storetest.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs, err := r.Store.LogsOf(t.Context(), op, 0, 10)
	if err != nil || len(logs) != 1 || string(logs[0].GetData()) != "from lab" ||
		logs[0].GetStream() != sessionstore.ConsoleStream {
		t.Errorf("the log is %v (%v)", logs, err)
	}
}

// TestDriftShows: on the machine while it lasts, and in the audit log with the difference.
func TestDriftShows(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	for seq, diff := range []string{"-  mtu 1500\n+  mtu 9000\n", ""} {
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: uint64(seq) + 1}
		if err := s.DriftEvent(t.Context(), k, "m-1", diff, "sha256:77", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		if shown := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Degraded) != nil; shown != (diff != "") {
			t.Errorf("with the difference %q the machine is degraded: %v", diff, shown)
		}
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'CONFIG_DRIFT' AND event_data ->> 'diff' "+
		"LIKE '%mtu 9000%' AND event_data ->> 'digest' = 'sha256:77'"); n != 1 {
		t.Errorf("%d differences in the audit log", n)
	}
}
