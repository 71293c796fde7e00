package operation_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
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
		_, err := r.Store.Sites.RecordSite(t.Context(), sitestore.SiteReport{Site: "lab", AgentID: r.Site.ID,
			LeasesSame: true, BMCs: []*fleetv1.BMCObservation{{MachineId: "m-1", Reachable: true, PowerState: state,
				SeenAt: timestamppb.New(at)}}}, storetest.Now())
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
		changes, err := r.Store.MachineFeed.Reconcile(t.Context(), "", storetest.Now().Add(-time.Hour), 10)
		return err == nil && len(changes.Machines) == 1 && proto.Equal(changes.Machines[0], m)
	}, "the reconciler does not see the machine as it is: %v", m)
}

// TestSomebodyElseAtThePowerButton: a change of the power that no command of the operation was to make is in its
// timeline, once for each change, and not more often than eight times. The operation's own switching is none.
func TestSomebodyElseAtThePowerButton(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")}).GetOperationId()
	sees := func(state string, at time.Time) (changes int) {
		t.Helper()
		recorded, err := r.Store.Sites.RecordSite(t.Context(), sitestore.SiteReport{Site: "lab", AgentID: r.Site.ID,
			LeasesSame: true, BMCs: []*fleetv1.BMCObservation{{MachineId: "m-1", Reachable: true, PowerState: state,
				SeenAt: timestamppb.New(at)}}}, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range recorded.Power {
			r.Decide(c.OperationID, c.Seen)
		}
		return len(recorded.Power)
	}
	said := func() string {
		t.Helper()
		o, err := r.Store.OperationQueries.GetOperation(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		return o.GetEvidence()[evidence.PowerChangesSeen]
	}
	sees("on", storetest.Now())
	r.Decide(op, operation.Evaluate{})
	v := r.Applied()
	sees("off", storetest.Now().Add(time.Second)) // the way into the installer is under way
	if got := said(); got != "" {
		t.Errorf("the operation accuses somebody of its own switching: %s", got)
	}
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{evidence.PowerOnSeenAt: "2026-01-01T00:00:00Z"})
	sees("on", storetest.Now().Add(2*time.Second))
	vouched, err := r.Vouch(v.GetAssignments()[0].GetToken(), "key", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Grant(op, r.Installer(vouched, "boot-ram"), "st-boot-ram", "boot-ram")
	if got := said(); got != "" {
		t.Errorf("the operation accuses somebody of its own switching: %s", got)
	}
	at := storetest.Now().Add(time.Minute)
	if sees("off", at) != 1 || said() != "off at "+at.UTC().Format(time.RFC3339) {
		t.Errorf("somebody has switched it off: %q", said())
	}
	if sees("off", at.Add(time.Second)) != 0 || sees("unknown", at.Add(2*time.Second)) != 0 {
		t.Error("what has not changed is a change")
	}
	for i := range 20 {
		sees([]string{"on", "off"}[i%2], at.Add(time.Duration(i+3)*time.Second))
	}
	if n := strings.Count(said(), " at "); n != 8 {
		t.Errorf("%d changes are told: %s", n, said())
	}
}

// TestConsoleOfAnotherSiteIsNotKept: a site's agent writes to the operations of its own machines and to no others.
func TestConsoleOfAnotherSiteIsNotKept(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")}).GetOperationId()
	for seq, site := range []string{"elsewhere", "lab"} {
		k := sessionstore.EventKey{AgentID: r.Site.ID, StateID: "st-site", Seq: uint64(seq) + 1}
		for range 2 { // a repeat of a number that was seen does nothing
			if err := r.Store.Sessions.ConsoleEvent(t.Context(), k, site, op, []byte("from "+site),
				storetest.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs, err := r.Store.Logs.LogsOf(t.Context(), op, 0, 10)
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
		if err := s.Sessions.DriftEvent(t.Context(), k, "m-1", diff, "sha256:77", storetest.Now()); err != nil {
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

// TestARAIDThatLacksADiskShows: on the machine while it lasts.
func TestARAIDThatLacksADiskShows(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	const lost = "md127 (raid1) lacks 1 of 2 disks"
	for seq, fault := range []string{"", lost, lost + " and is being rebuilt", ""} {
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: uint64(seq) + 1}
		if err := s.Sessions.RAIDEvent(t.Context(), k, "m-1", fault, storetest.Now()); err != nil {
			t.Fatal(err)
		}
		c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.RAIDDegraded)
		if (c != nil) != (fault != "") || c.GetMessage() != fault || fault != "" && c.GetReason() != "RAID_DEGRADED" {
			t.Errorf("with the fault %q the machine has the condition %v", fault, c)
		}
	}
}

// TestAnotherAgentFindsForItself what is wrong with its host: what an earlier one has found does not stay.
func TestAnotherAgentFindsForItself(t *testing.T) {
	r := storetest.NewMetalRig(t)
	finds := func(a storetest.Enrolled) {
		t.Helper()
		storetest.Open(t, r.Store, a.Hello("st-"+a.ID, "boot-"+a.ID))
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-" + a.ID, Seq: 1}
		err := r.Store.Sessions.DriftEvent(t.Context(), k, "m-1", "-  mtu 1500\n+  mtu 9000\n", "sha256:77", storetest.Now())
		k.Seq++
		if err = errors.Join(
			err,
			r.Store.Sessions.RAIDEvent(t.Context(), k, "m-1", "md0 is not running", storetest.Now()),
		); err != nil {
			t.Fatal(err)
		}
	}
	shown := func(when string, want bool) {
		t.Helper()
		for _, c := range []fleet.ConditionType{fleet.Degraded, fleet.RAIDDegraded} {
			if got := storetest.Condition(storetest.Machine(t, r.Store, "m-1"), c); (got != nil) != want {
				t.Errorf("%s: %s is %v", when, c, got)
			}
		}
	}
	host := storetest.Enrol(t, r.Store, agentstore.NewToken{TokenID: "t-host", MachineID: "m-1"})
	finds(host)
	shown("found", true)
	again := storetest.Enrol(t, r.Store, agentstore.NewToken{TokenID: "t-again", MachineID: "m-1"})
	shown("another agent has enrolled", false)
	finds(again)
	shown("found by that one, too", true)
}

// writeAgentless brings a reimage without an agent to where its system is to phone home, and returns its secret.
func writeAgentless(r *storetest.MetalRig, request string) (op, secret string) {
	r.T.Helper()
	in := storetest.Inputs("tiny")
	in.Agentless = true
	op = storetest.Start(r.T, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: request, Type: fleet.Reimage,
		Params: map[string]string{"image_ref": "tiny", "agentless": "true"}, Inputs: in}).
		GetOperationId()
	r.Decide(op, operation.Evaluate{})
	token := r.Applied().GetAssignments()[0].GetToken()
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})
	v, err := r.Vouch(token, "key of "+request, storetest.Now())
	if err != nil {
		r.T.Fatal(err)
	}
	r.Extra = []string{"agentless"}
	boot := "boot-" + request
	inst := r.Installer(v, boot)
	if write := r.Grant(op, inst, "st-"+boot, boot).GetRepave(); !write.GetAgentless() {
		r.T.Fatalf("the write is %v", write)
	}
	command := r.Command(op).GetCommandId()
	for _, secret = range []string{"of an attempt whose answer was lost", "secret of " + request} {
		id, err := r.Store.Identities.IssueIdentity(r.T.Context(), inst.ID, command, "t-"+secret, secret, storetest.Now())
		if err != nil || !id.Agentless {
			r.T.Fatalf("identity %+v (%v)", id, err)
		}
	}
	r.Decide(op, operation.Resulted{CommandID: command, AgentID: inst.ID, StateID: "st-" + boot,
		Outcome: operation.OutcomeSucceeded, Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"}})
	doc := r.Applied()
	sum := sha256.Sum256([]byte(secret))
	if p := doc.GetPhoneHomes(); len(p) != 1 || !bytes.Equal(p[0].GetSecretSha256(), sum[:]) ||
		p[0].GetOperationId() != op ||
		p[0].GetMachineId() != "m-1" {
		r.T.Fatalf("the site waits for %v", p)
	}
	r.Grant(op, inst, "st-"+boot, boot)
	return op, secret
}

// TestTheInstallerIsToldWhatTheSeedIsFor, and no more of it, so that it refuses an image before it writes.
func TestTheInstallerIsToldWhatTheSeedIsFor(t *testing.T) {
	for data, want := range map[string]struct {
		is    bool
		unfit string
	}{
		`{"ignition": {"version": "3.0.0"}}`: {is: true},
		"#cloud-config\n{}\n":                {unfit: "the user-data is for cloud-init"},
		"":                                   {},
	} {
		plain, err := proto.Marshal(&baremetalv1.SystemSeed{UserData: data})
		if err != nil {
			t.Fatal(err)
		}
		r := storetest.NewMetalRigWith(t, store.Config{OpenSeed: func(id string, sealed []byte) ([]byte, error) {
			if id != "seed-1" || string(sealed) != "sealed" {
				return nil, fmt.Errorf("asked for %s: %q", id, sealed)
			}
			return plain, nil
		}})
		if err := r.Store.Credentials.PutSystemSeed(t.Context(), "seed-1", []byte("sealed"), storetest.Now()); err != nil {
			t.Fatal(err)
		}
		op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
			Params: map[string]string{"image_ref": "tiny", "seed": "seed-1"}, Inputs: storetest.Inputs("tiny")}).GetOperationId()
		r.Decide(op, operation.Evaluate{})
		token := r.Applied().GetAssignments()[0].GetToken()
		r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})
		v, err := r.Vouch(token, "key", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		write := r.Grant(op, r.Installer(v, "boot-1"), "st-boot-1", "boot-1").GetRepave()
		if write.GetImageRef() != "tiny" || write.GetSeedIgnition() != want.is || write.GetSeedUnfit() != want.unfit {
			t.Errorf("%q: %v", data, write)
		}
	}
}

func report(op, secret string) map[string]string {
	sum := sha256.Sum256([]byte(secret))
	return map[string]string{
		evidence.PhoneHomeSecret: hex.EncodeToString(sum[:]), evidence.PhonedHomeAt: "2026-03-01T12:05:00Z",
		evidence.PhonedHomeFrom: "10.20.0.50", evidence.InstanceID: evidence.InstanceOf(op), "unasked": "x",
	}
}

// TestAgentlessReimageThroughTheStore: with the controller killed at each decision too. The secret works once, for its
// operation, at its site; afterwards the machine is known to have no agent, until one is installed again.
func TestAgentlessReimageThroughTheStore(t *testing.T) {
	for _, crash := range []string{"", "store.before-apply", "store.before-commit", "store.after-commit"} {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			r := storetest.NewMetalRig(t)
			r.Crash = crash
			op, secret := writeAgentless(r, "a")
			if n := storetest.Count(t, r.Store, "SELECT count(*) FROM bootstrap_tokens WHERE role = 'host'"); n != 0 {
				t.Errorf("%d tokens for an agent that is not there", n)
			}
			seq := uint64(0)
			event := func(site string, fields map[string]string) string {
				seq++
				k := sessionstore.EventKey{AgentID: r.Site.ID, StateID: "st-site", Seq: seq}
				id, err := r.Store.Sessions.PhoneHomeEvent(t.Context(), k, site, fields, storetest.Now())
				if err != nil {
					t.Fatal(err)
				}
				return id
			}
			other := report(op, secret)
			other[evidence.InstanceID] = "i-1"
			if a, b := event(
				"lab",
				report(op, "guessed"),
			), event(
				"lab",
				report(op, "of an attempt whose answer was lost"),
			); a+b != "" {
				t.Errorf("a wrong secret is that of %s%s", a, b)
			}
			if id := event("elsewhere", report(op, secret)); id != "" {
				t.Errorf("another site's agent speaks of %s", id)
			}
			for _, said := range []map[string]string{other, report(op, secret), other} {
				if id := event("lab", said); id != op {
					t.Fatalf("the secret is that of %q", id)
				}
			}
			seq-- // the same event again, because its answer was lost
			if id := event("lab", other); id != op {
				t.Errorf("a repeated event is that of %q", id)
			}
			a := r.Decide(op, operation.Evaluate{})
			e := a.Decision.Op.Evidence
			if a.Phase != operation.Succeeded || e[evidence.BootedBy] != operation.ByPhoneHome || e["unasked"] != "" ||
				e[evidence.PhoneHomeSecret] != "" {
				t.Fatalf("%s: %v", a.Phase, e)
			}
			if id := event("lab", report(op, secret)); id != "" {
				t.Errorf("the secret is still that of %s", id)
			}
			st := storetest.Machine(t, r.Store, "m-1").GetStatus()
			if !st.GetAgentless() || st.GetAgentId() != "" || st.GetProbedAddress() != "10.20.0.50" {
				t.Errorf("the machine is %v", st)
			}
			doc := r.Applied()
			if p := doc.GetProbes(); len(doc.GetPhoneHomes()) != 0 || len(p) != 1 || p[0].GetAddress() != "10.20.0.50" ||
				p[0].GetMacAddresses()[0] != storetest.MetalMAC {
				t.Errorf("the document is %v", doc)
			}
			r.Extra = nil
			r.Reimage()
			if st := storetest.Machine(t, r.Store, "m-1").GetStatus(); st.GetAgentless() || st.GetAgentId() == "" {
				t.Errorf("with an agent again, the machine is %v", st)
			}
		})
	}
}

// TestWhatNeedsAnAgentIsRefusedWithoutOne: at its admission, with the command that helps.
func TestWhatNeedsAnAgentIsRefusedWithoutOne(t *testing.T) {
	r := storetest.NewMetalRig(t)
	start := func(request string, kind fleet.OperationType, plan string, agentless bool) error {
		in := storetest.Inputs("tiny")
		in.Agentless = agentless
		in.Config = &baremetalv1.NetReconfig{Hostname: "x"}
		_, _, err := r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: request,
			Type: kind, PlanID: plan, Inputs: in}, storetest.Now())
		return err
	}
	storetest.Exec(t, r.Store, `UPDATE machines SET spec = spec || '{"target_cluster_ref": "c"}'`)
	if err := start("join", fleet.RunPlan, "repave-join", true); failure.From(err).Reason != "MACHINE_AGENTLESS" {
		t.Errorf("a join after it: %v", err)
	}
	if err := start("reboot", fleet.Reboot, "", true); failure.From(err).Reason != "CAPABILITY_MISSING" {
		t.Errorf("a reboot is installed without an agent: %v", err)
	}
	op, secret := writeAgentless(r, "a")
	k := sessionstore.EventKey{AgentID: r.Site.ID, StateID: "st-site", Seq: 1}
	if _, err := r.Store.Sessions.PhoneHomeEvent(t.Context(), k, "lab", report(op, secret), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.Decide(op, operation.Evaluate{})
	err := start("net", fleet.Reconfigure, "", false)
	if f := failure.From(err); f.Reason != "MACHINE_AGENTLESS" || !strings.Contains(f.Message, "ingot reimage m-1") {
		t.Errorf("a reconfiguration: %v", err)
	}
	if err := start("reboot", fleet.Reboot, "", false); err != nil {
		t.Errorf("a reboot: %v", err)
	}
}
