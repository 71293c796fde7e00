package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const metalMAC = "52:54:00:12:34:56"

var siteCapabilities = []string{"netboot", "power", "provider:agent", "reboot"}

// metalRig is a machine with a BMC on a site that serves it, and its site's agent.
type metalRig struct {
	*testing.T
	s    *store.Store
	site enrolled
	seq  uint64
	// epoch of the site agent's newest session.
	epoch int64
	// crash is the failpoint at which the controller dies the first time that it decides on each event.
	crash string
	// siteDies opens the site agent's session anew before each event, with its memory, and asks and tells everything twice.
	siteDies bool
	crashes  int
	// extra is what installers can do besides writing.
	extra []string
}

// decide brings an event to an operation: over a crash of the controller, after which the event comes again.
func (r *metalRig) decide(op string, e operation.Event) *store.Applied {
	r.Helper()
	if r.siteDies {
		h := r.site.hello("st-site", "boot-site")
		h.Capabilities, h.LastGrantSeq = siteCapabilities, r.seq
		for _, id := range open(r, r.s, h).Operations {
			decide(r, r.s, id, operation.SessionOpened{AgentID: r.site.id, StateID: "st-site", BootID: "boot-site"})
		}
		r.epoch++
	}
	if r.crash != "" {
		scope := failpoint.NewScope()
		scope.Set(r.crash, failpoint.Error().At(1))
		if _, err := r.s.Decide(failpoint.With(r.Context(), scope), op, 0, e, now()); err == nil {
			r.Fatalf("no crash at %s", r.crash)
		}
		r.crashes++
		if g, asked := e.(operation.GrantAsked); asked {
			r.seq++
			g.Seq, g.Earlier = r.seq, asksBefore(r.seq)
			e = g
		}
	}
	return decide(r, r.s, op, e)
}

func newMetalRig(t *testing.T) *metalRig {
	t.Helper()
	s := storetest.New(t)
	exec(t, s, `INSERT INTO sites (site, segments) VALUES ('lab', '[{"name": "seg", "interface": "eth1", "address": "10.20.0.1/24"}]')`)
	exec(t, s, `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes, minimum_disk_bytes, created_at) VALUES
		('k', 'installer-kernel', 'amd64', 'raw', 'aa', 'aa', 1, 1, 0, now()), ('i', 'installer-initrd', 'amd64', 'raw', 'bb', 'bb', 1, 1, 0, now()),
		('tiny', 'os', 'amd64', 'raw.zst', 'cc', 'dd', 100, 10, 200, now())`)
	_, err := s.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{
		Provider: "agent", Site: "lab", MacAddresses: []string{metalMAC}, BmcEndpoint: "10.20.0.9", InstallDisk: "serial=QM1",
	}}, "tester", now())
	if err != nil {
		t.Fatal(err)
	}
	r := &metalRig{T: t, s: s, site: enrol(t, s, store.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})}
	lease(t, s)
	h := r.site.hello("st-site", "boot-site")
	h.Capabilities = siteCapabilities
	open(t, s, h)
	r.epoch = 1
	maintenance(t, s, "m-1")
	return r
}

// applied lets the site's agent say that it serves by the newest document, and looks at what waited for it.
func (r *metalRig) applied() *fleetv1.SiteDocument {
	r.Helper()
	d, err := r.s.SiteDocument(r.Context(), "lab")
	if err != nil {
		r.Fatal(err)
	}
	waiting, err := r.s.RecordSite(r.Context(), store.SiteReport{
		Site: "lab", AgentID: r.site.id, Applied: d.GetRevision(), BootAddresses: map[string]string{"seg": "10.20.0.1:8080"}, LeasesSame: true,
	}, now())
	if err != nil {
		r.Fatal(err)
	}
	for _, id := range waiting {
		r.decide(id, operation.Look{})
	}
	return d
}

func (r *metalRig) command(operationID string) *fleetv1.CommandSpec {
	r.Helper()
	out, err := r.s.Unsettled(r.Context(), r.executor(operationID))
	if err != nil || len(out) != 1 {
		r.Fatalf("%d commands wait (%v)", len(out), err)
	}
	c := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(out[0].Spec, c); err != nil {
		r.Fatal(err)
	}
	return c
}

func (r *metalRig) executor(operationID string) string {
	r.Helper()
	list, err := r.s.ListCommands(r.Context(), store.CommandFilter{OperationID: operationID, Limit: 1000})
	if err != nil || len(list) == 0 {
		r.Fatalf("no command (%v)", err)
	}
	newest := list[0]
	for _, c := range list {
		if c.GetCreatedAt().AsTime().After(newest.GetCreatedAt().AsTime()) {
			newest = c
		}
	}
	return newest.GetExecutorAgentId()
}

// done grants the open command to an agent and takes its success.
func (r *metalRig) done(op string, a enrolled, state, boot string, seen map[string]string) {
	r.Helper()
	r.grant(op, a, state, boot)
	c := r.command(op)
	r.decide(op, operation.Resulted{CommandID: c.GetCommandId(), AgentID: a.id, StateID: state, Outcome: operation.OutcomeSucceeded, Evidence: seen})
}

func (r *metalRig) grant(op string, a enrolled, state, boot string) *fleetv1.CommandSpec {
	r.Helper()
	out, err := r.s.Unsettled(r.Context(), a.id)
	if err != nil || len(out) != 1 {
		r.Fatalf("%d commands for %s (%v)", len(out), a.id, err)
	}
	epoch := int64(1)
	if a.id == r.site.id {
		if epoch = r.epoch; r.siteDies {
			epoch++ // the session that is about to be opened
		}
	}
	r.seq++
	d := r.decide(op, operation.GrantAsked{
		CommandID: out[0].CommandID, AgentID: a.id, StateID: state, BootID: boot, Seq: r.seq, Digest: out[0].Digest, Epoch: epoch,
		Earlier: asksBefore(r.seq),
	})
	if !d.Decision.Grant {
		r.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	return r.command(op)
}

// vouch asks for a certificate of an installer's key.
func (r *metalRig) vouch(token, key string, at time.Time) (*store.Vouched, error) {
	return r.s.Vouch(r.Context(), store.VouchRequest{
		SiteAgentID: r.site.id, MachineID: "m-1", BootToken: token, MAC: metalMAC, PublicKeyDigest: []byte(key),
	}, newSigner().sign, at)
}

// installer opens the session of a certified installer.
func (r *metalRig) installer(v *store.Vouched, boot string) enrolled {
	r.Helper()
	a := enrolled{id: v.AgentID, machine: "m-1", fingerprint: "fp-" + v.AgentID + "1"}
	h := a.hello("st-"+boot, boot)
	h.Capabilities = append([]string{"repave", "erase", "reboot"}, r.extra...)
	o := open(r, r.s, h)
	for _, id := range o.Operations {
		r.decide(id, operation.SessionOpened{AgentID: a.id, StateID: "st-" + boot, BootID: boot, Installer: true})
	}
	return a
}

// TestReimageThroughTheStore walks a reimage of an empty machine through the tables: assignment, site, vouching, identity,
// and the proof by the new system. Then with the controller killed at each stage, before, in and after the transaction of
// every decision, and with the site's agent killed before every event.
func TestReimageThroughTheStore(t *testing.T) {
	for _, crash := range []string{"", "store.before-apply", "store.before-commit", "store.after-commit"} {
		for _, siteDies := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%s,site=%v", crash, siteDies), func(t *testing.T) {
				t.Parallel()
				r := newMetalRig(t)
				r.crash, r.siteDies = crash, siteDies
				r.reimage()
				if crash != "" && r.crashes < 10 {
					t.Errorf("only %d crashes", r.crashes)
				}
			})
		}
	}
}

func (r *metalRig) reimage() {
	t := r.T
	r.Helper()
	op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Params: map[string]string{"image_ref": "tiny"}, Inputs: inputs("tiny")}).GetOperationId()
	if a := r.decide(op, operation.Look{}); a.Decision.Op.WaitReason != operation.WaitSite {
		t.Fatalf("it waits for %q", a.Decision.Op.WaitReason)
	}
	doc := r.applied()
	b := doc.GetAssignments()[0]
	if b.GetMode() != "installer" || b.GetOperationId() != op || len(b.GetToken()) < 20 || b.GetMacAddresses()[0] != metalMAC || b.GetPrefetchSha256()[0] != "cc" {
		t.Fatalf("the assignment is %v", b)
	}
	if doc.GetBmcs()[0].GetEndpoint() != "10.20.0.9" || doc.GetInstallers()[0].GetKernelSha256() != "aa" || doc.GetSegments()[0].GetInterface() != "eth1" {
		t.Errorf("the document is %v", doc)
	}
	if m := machine(t, r.s, "m-1"); m.GetStatus().GetBootAssignment() != "installer" {
		t.Errorf("the machine shows %q", m.GetStatus().GetBootAssignment())
	}
	power := r.command(op)
	if p := power.GetPower(); p.GetWant() != "cycle" || p.GetBootOnce() != "PXE" || power.GetBmcEndpoint() != "10.20.0.9" {
		t.Fatalf("the command is %v", power)
	}
	r.done(op, r.site, "st-site", "boot-site", map[string]string{"power": "on"})

	v, err := r.vouch(b.GetToken(), "key", now())
	if err != nil {
		t.Fatal(err)
	}
	inst := r.installer(v, "boot-ram")
	write := r.grant(op, inst, "st-boot-ram", "boot-ram").GetRepave()
	if write.GetSha256Raw() != "dd" || write.GetBlobSha256() != "cc" || write.GetDiskRule() != "serial=QM1" || write.GetRawSize() != 100 {
		t.Fatalf("the write is %v", write)
	}
	id, err := r.s.IssueIdentity(t.Context(), inst.id, r.command(op).GetCommandId(), "t-new", "secret of t-new", now())
	if err != nil || id.ImageDigest != "sha256:dd" || id.MachineID != "m-1" {
		t.Fatalf("identity %+v (%v)", id, err)
	}
	r.decide(op, operation.Resulted{
		CommandID: r.command(op).GetCommandId(), AgentID: inst.id, StateID: "st-boot-ram", Outcome: operation.OutcomeSucceeded,
		Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
	})
	if d := r.applied(); d.GetAssignments()[0].GetMode() != "disk" {
		t.Fatalf("the machine would boot %v", d.GetAssignments()[0])
	}
	r.grant(op, inst, "st-boot-ram", "boot-ram")
	r.newSystem(op)
	m := machine(t, r.s, "m-1")
	if got, err := r.s.GetOperation(t.Context(), op); err != nil || got.GetPhase() != baremetalv1.Operation_SUCCEEDED ||
		m.GetStatus().GetOsImageDigest() != "sha256:dd" || condition(m, fleet.Provisioned) == nil {
		t.Errorf("the operation is %v, the machine %v (%v)", got, m.GetStatus(), err)
	}
	for kind, want := range map[string]int{"power": 1, "repave": 1, "reboot": 1} {
		if n := count(t, r.s, "SELECT count(*) FROM commands WHERE operation_id = $1 AND kind = $2", op, kind); n != want {
			t.Errorf("%d commands of kind %s", n, kind)
		}
	}
	if n := count(t, r.s, "SELECT count(*) FROM boot_assignments WHERE mode = 'disk'"); n != 1 {
		t.Error("the machine does not boot from its disk")
	}
}

// newSystem enrols the system that was written, with the token that it was handed.
func (r *metalRig) newSystem(op string) {
	r.Helper()
	fp := ""
	e, err := r.s.Enroll(r.Context(), store.EnrollRequest{TokenID: "t-new", Secret: "secret of t-new", PublicKeyDigest: []byte("new")},
		func(ctx context.Context, id string) (*store.Signed, error) {
			c, err := newSigner().sign(ctx, id)
			fp = c.Fingerprint
			return c, err
		}, now())
	if err != nil {
		r.Fatal(err)
	}
	a := enrolled{id: e.AgentID, machine: "m-1", fingerprint: fp}
	h := a.hello("st-new", "boot-new")
	h.ImageDigest = "sha256:dd"
	waiting := open(r, r.s, h).Operations
	a.arrivedAs(r, r.s, "st-new", metalMAC)
	for _, id := range waiting {
		r.decide(id, operation.SessionOpened{AgentID: a.id, StateID: "st-new", BootID: "boot-new", OfTarget: true})
	}
}

// TestSecondKey: the same key gets the same certificate; another one waits, and is contested by a sign of life of the
// first, or takes its place after its silence.
func TestSecondKey(t *testing.T) {
	r := newMetalRig(t)
	op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
	r.decide(op, operation.Look{})
	token := r.applied().GetAssignments()[0].GetToken()
	if _, err := r.vouch("another token", "key", now()); err == nil {
		t.Error("a wrong boot token was taken")
	}
	first, err := r.vouch(token, "key", now())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.vouch(token, "key", now()); err != nil || string(again.ChainPEM) != string(first.ChainPEM) || again.AgentID != first.AgentID {
		t.Errorf("the same key got %+v (%v)", again, err)
	}
	at := now()
	if v, err := r.vouch(token, "other", at); err != nil || !v.Waits {
		t.Fatalf("a second key got %+v (%v)", v, err)
	}
	if v, err := r.vouch(token, "other", at.Add(14*time.Second)); err != nil || !v.Waits {
		t.Errorf("a second key got %+v (%v) before the first one's time was up", v, err)
	}
	second, err := r.vouch(token, "other", at.Add(15*time.Second))
	if err != nil || second.AgentID == "" || len(second.Replaced) != 1 {
		t.Fatalf("after the silence of the first, the second got %+v (%v)", second, err)
	}
	r.installer(second, "boot-2")
	at = now()
	if v, err := r.vouch(token, "third", at.Add(-5*time.Second)); err != nil || !v.Waits {
		t.Fatalf("a third key got %+v (%v)", v, err)
	}
	if v, err := r.vouch(token, "third", at); err != nil || !v.Contested {
		t.Errorf("a third key got %+v (%v) while the second one's owner lives", v, err)
	}
}

// TestPowerOffLiftsAFence: what was granted to a machine that is off runs no more.
func TestPowerOffLiftsAFence(t *testing.T) {
	r := newMetalRig(t)
	op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
	r.decide(op, operation.Look{})
	v := r.applied()
	r.done(op, r.site, "st-site", "boot-site", map[string]string{"power": "on"})
	vouched, err := r.vouch(v.GetAssignments()[0].GetToken(), "key", now())
	if err != nil {
		t.Fatal(err)
	}
	inst := r.installer(vouched, "boot-ram")
	r.grant(op, inst, "st-boot-ram", "boot-ram")
	r.decide(op, operation.Quarantine{Reason: "CLONE_DETECTED", Message: "for the test"})
	if machine(t, r.s, "m-1").GetStatus().GetUnresolvedCommandId() == "" {
		t.Fatal("the machine is not fenced")
	}
	saw := func(state string, at time.Time) {
		t.Helper()
		_, err := r.s.RecordSite(t.Context(), store.SiteReport{Site: "lab", AgentID: r.site.id, LeasesSame: true, BMCs: []*fleetv1.BMCObservation{{
			MachineId: "m-1", Reachable: true, PowerState: state, SeenAt: timestamppb.New(at),
		}}}, now())
		if err != nil {
			t.Fatal(err)
		}
	}
	saw("off", now().Add(-time.Hour))
	saw("on", now())
	if machine(t, r.s, "m-1").GetStatus().GetUnresolvedCommandId() == "" {
		t.Fatal("an old power-off, or a machine that is on, lifted the fence")
	}
	saw("off", now().Add(time.Second))
	m := machine(t, r.s, "m-1")
	if m.GetStatus().GetUnresolvedCommandId() != "" || m.GetStatus().GetPowerState() != "off" || condition(m, fleet.BMCReachable) == nil {
		t.Errorf("the machine is %v", m.GetStatus())
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		changes, err := r.s.Reconcile(t.Context(), "", now().Add(-time.Hour), 10)
		return err == nil && len(changes.Machines) == 1 && proto.Equal(changes.Machines[0], m)
	}, "the reconciler does not see the machine as it is: %v", m)
}

// TestConsoleOfAnotherSiteIsNotKept: a site's agent writes to the operations of its own machines and to no others.
func TestConsoleOfAnotherSiteIsNotKept(t *testing.T) {
	r := newMetalRig(t)
	op := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
	for seq, site := range []string{"elsewhere", "lab"} {
		k := store.EventKey{AgentID: r.site.id, StateID: "st-site", Seq: uint64(seq) + 1}
		for range 2 { // a repeat of a number that was seen does nothing
			if err := r.s.ConsoleEvent(t.Context(), k, site, op, []byte("from "+site), now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs, err := r.s.LogsOf(t.Context(), op, 0, 10)
	if err != nil || len(logs) != 1 || string(logs[0].GetData()) != "from lab" || logs[0].GetStream() != store.ConsoleStream {
		t.Errorf("the log is %v (%v)", logs, err)
	}
}

// TestDriftShows: on the machine while it lasts, and in the audit log with the difference.
func TestDriftShows(t *testing.T) {
	s := storetest.New(t)
	a := live(t, s, "m-1")
	for seq, diff := range []string{"-  mtu 1500\n+  mtu 9000\n", ""} {
		k := store.EventKey{AgentID: a.id, StateID: "st-1", Seq: uint64(seq) + 1}
		if err := s.DriftEvent(t.Context(), k, "m-1", diff, "sha256:77", now()); err != nil {
			t.Fatal(err)
		}
		if shown := condition(machine(t, s, "m-1"), fleet.Degraded) != nil; shown != (diff != "") {
			t.Errorf("with the difference %q the machine is degraded: %v", diff, shown)
		}
	}
	if n := count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'CONFIG_DRIFT' AND event_data ->> 'diff' LIKE '%mtu 9000%' AND event_data ->> 'digest' = 'sha256:77'"); n != 1 {
		t.Errorf("%d differences in the audit log", n)
	}
}

func exec(t testing.TB, s *store.Store, sql string) {
	t.Helper()
	if err := execSQL(t, s, sql); err != nil {
		t.Fatal(err)
	}
}

func inputs(image string) plan.Inputs { return plan.Inputs{ImageRef: image} }
