package storetest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

const MetalMAC = "52:54:00:12:34:56"

var siteCapabilities = []string{"netboot", "power", "provider:agent", "reboot"}

// MetalRig is a machine with a BMC on a site that serves it, and its site's agent.
type MetalRig struct {
	T     *testing.T
	Store *store.Store
	Site  Enrolled
	seq   uint64
	// epoch of the site agent's newest session.
	epoch int64
	// Crash is the failpoint at which the controller dies the first time that it decides on each event.
	Crash string
	// SiteDies opens the site agent's session anew before each event, with its memory, and sends each request and report
	// twice.
	SiteDies bool
	Crashes  int
	// Extra is what installers can do besides writing.
	Extra []string
}

// Decide brings an event to an operation: over a crash of the controller, after which the event comes again.
func (r *MetalRig) Decide(op string, e operation.Event) *operationstore.Applied {
	r.T.Helper()
	if r.SiteDies {
		h := r.Site.Hello("st-site", "boot-site")
		h.Capabilities, h.LastGrantSeq = siteCapabilities, r.seq
		for _, id := range Open(r.T, r.Store, h).Operations {
			Decide(r.T, r.Store, id, operation.SessionOpened{AgentID: r.Site.ID, StateID: "st-site", BootID: "boot-site"})
		}
		r.epoch++
	}
	if r.Crash != "" {
		scope := failpoint.NewScope()
		scope.Set(r.Crash, failpoint.Error().At(1))
		if _, err := r.Store.Operations.Decide(failpoint.With(r.T.Context(), scope), op, e, Now()); err == nil {
			r.T.Fatalf("no crash at %s", r.Crash)
		}
		r.Crashes++
		if g, asked := e.(operation.GrantAsked); asked {
			r.seq++
			g.Seq, g.Earlier = r.seq, AsksBefore(r.seq)
			e = g
		}
	}
	return Decide(r.T, r.Store, op, e)
}

func NewMetalRig(t *testing.T) *MetalRig {
	t.Helper()
	return NewMetalRigWith(t, store.Config{})
}

// NewMetalRigWith is NewMetalRig on a store of a configuration.
func NewMetalRigWith(t *testing.T, c store.Config) *MetalRig {
	t.Helper()
	return NewMetalRigOn(t, With(t, c))
}

// NewMetalRigOn is NewMetalRig over a store.
func NewMetalRigOn(t *testing.T, s *store.Store) *MetalRig {
	t.Helper()
	Exec(
		t,
		s,
		`INSERT INTO sites (site, segments) VALUES ('lab', '[{"name": "seg", "interface": "eth1", "address": "10.20.0.1/24"}]')`,
	)
	Exec(
		t,
		s,
		`INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes, file_size_bytes, minimum_disk_bytes, created_at) VALUES
		('k', 'installer-kernel', 'amd64', 'raw', 'aa', 'aa', 1, 1, 0, now()), ('i', 'installer-initrd', 'amd64', 'raw', 'bb', 'bb', 1, 1, 0, now()),
		('tiny', 'os', 'amd64', 'raw.zst', 'cc', 'dd', 100, 10, 200, now())`,
	)
	_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{
		Provider: "agent", Site: "lab", MacAddresses: []string{MetalMAC}, BmcEndpoint: "10.20.0.9", InstallDisk: "serial=QM1",
	}}, "tester", Now())
	if err != nil {
		t.Fatal(err)
	}
	r := &MetalRig{T: t, Store: s, Site: Enrol(t, s, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})}
	Lease(t, s)
	h := r.Site.Hello("st-site", "boot-site")
	h.Capabilities = siteCapabilities
	Open(t, s, h)
	r.epoch = 1
	Maintenance(t, s, "m-1")
	return r
}

// Applied has the site's agent report the newest document as applied, and evaluates the operations that waited for it.
func (r *MetalRig) Applied() *fleetv1.SiteDocument {
	r.T.Helper()
	d, err := r.Store.Sites.SiteDocument(r.T.Context(), "lab")
	if err != nil {
		r.T.Fatal(err)
	}
	recorded, err := r.Store.Sites.RecordSite(r.T.Context(), sitestore.SiteReport{
		Site: "lab", AgentID: r.Site.ID, Applied: d.GetRevision(), BootAddresses: map[string]string{"seg": "10.20.0.1:8080"},
		LeasesSame: true,
	}, Now())
	if err != nil {
		r.T.Fatal(err)
	}
	for _, id := range recorded.Waiting {
		r.Decide(id, operation.Evaluate{})
	}
	return d
}

func (r *MetalRig) Command(operationID string) *fleetv1.CommandSpec {
	r.T.Helper()
	out, err := r.Store.Sessions.Unsettled(r.T.Context(), r.executor(operationID))
	if err != nil || len(out) != 1 {
		r.T.Fatalf("%d commands wait (%v)", len(out), err)
	}
	c := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(out[0].Spec, c); err != nil {
		r.T.Fatal(err)
	}
	return c
}

func (r *MetalRig) executor(operationID string) string {
	r.T.Helper()
	list, err := r.Store.OperationQueries.ListCommands(r.T.Context(),
		operationquery.CommandFilter{OperationID: operationID, Limit: 1000})
	if err != nil || len(list) == 0 {
		r.T.Fatalf("no command (%v)", err)
	}
	newest := list[0]
	for _, c := range list {
		if c.GetCreatedAt().AsTime().After(newest.GetCreatedAt().AsTime()) {
			newest = c
		}
	}
	return newest.GetExecutorAgentId()
}

// Done grants the open command to an agent and takes its success.
func (r *MetalRig) Done(op string, a Enrolled, state, boot string, seen map[string]string) {
	r.T.Helper()
	r.Grant(op, a, state, boot)
	c := r.Command(op)
	r.Decide(op, operation.Resulted{CommandID: c.GetCommandId(), AgentID: a.ID, StateID: state,
		Outcome: operation.OutcomeSucceeded, Evidence: seen})
}

func (r *MetalRig) Grant(op string, a Enrolled, state, boot string) *fleetv1.CommandSpec {
	r.T.Helper()
	out, err := r.Store.Sessions.Unsettled(r.T.Context(), a.ID)
	if err != nil || len(out) != 1 {
		r.T.Fatalf("%d commands for %s (%v)", len(out), a.ID, err)
	}
	epoch := int64(1)
	if a.ID == r.Site.ID {
		if epoch = r.epoch; r.SiteDies {
			epoch++ // the session that is about to be opened
		}
	}
	r.seq++
	d := r.Decide(op, operation.GrantAsked{
		CommandID: out[0].CommandID, AgentID: a.ID, StateID: state, BootID: boot, Seq: r.seq, Digest: out[0].Digest,
		Epoch:   epoch,
		Earlier: AsksBefore(r.seq),
	})
	if !d.Decision.Grant {
		r.T.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	return r.Command(op)
}

// Vouch asks for a certificate of an installer's key.
func (r *MetalRig) Vouch(token, key string, at time.Time) (*identitystore.Vouched, error) {
	return r.Store.Identities.Vouch(r.T.Context(), identitystore.VouchRequest{
		SiteAgentID: r.Site.ID, MachineID: "m-1", BootToken: token, MAC: MetalMAC, PublicKeyDigest: []byte(key),
	}, NewSigner().SignFor, at)
}

// Installer opens the session of a certified installer.
func (r *MetalRig) Installer(v *identitystore.Vouched, boot string) Enrolled {
	r.T.Helper()
	a := Enrolled{ID: v.AgentID, Machine: "m-1", Fingerprint: "fp-" + v.AgentID + "1"}
	h := a.Hello("st-"+boot, boot)
	h.Capabilities = append([]string{"repave", "erase", "reboot"}, r.Extra...)
	o := Open(r.T, r.Store, h)
	for _, id := range o.Operations {
		r.Decide(id, operation.SessionOpened{AgentID: a.ID, StateID: "st-" + boot, BootID: boot, Installer: true})
	}
	return a
}

func (r *MetalRig) Reimage() {
	t := r.T
	r.T.Helper()
	op := Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Params: map[string]string{"image_ref": "tiny"}, Inputs: Inputs("tiny")}).GetOperationId()
	if a := r.Decide(op, operation.Evaluate{}); a.Decision.Op.WaitReason != operation.WaitSite {
		t.Fatalf("it waits for %q", a.Decision.Op.WaitReason)
	}
	doc := r.Applied()
	b := doc.GetAssignments()[0]
	if b.GetMode() != "installer" || b.GetOperationId() != op || len(b.GetToken()) < 20 ||
		b.GetMacAddresses()[0] != MetalMAC || b.GetPrefetchSha256()[0] != "cc" {
		t.Fatalf("the assignment is %v", b)
	}
	if doc.GetBmcs()[0].GetEndpoint() != "10.20.0.9" || doc.GetInstallers()[0].GetKernelSha256() != "aa" ||
		doc.GetSegments()[0].GetInterface() != "eth1" {
		t.Errorf("the document is %v", doc)
	}
	if m := Machine(t, r.Store, "m-1"); m.GetStatus().GetBootAssignment() != "installer" {
		t.Errorf("the machine shows %q", m.GetStatus().GetBootAssignment())
	}
	power := r.Command(op)
	if p := power.GetPower(); p.GetWant() != "cycle" || p.GetBootOnce() != "PXE" || power.GetBmcEndpoint() != "10.20.0.9" {
		t.Fatalf("the command is %v", power)
	}
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})

	v, err := r.Vouch(b.GetToken(), "key", Now())
	if err != nil {
		t.Fatal(err)
	}
	inst := r.Installer(v, "boot-ram")
	write := r.Grant(op, inst, "st-boot-ram", "boot-ram").GetRepave()
	if write.GetSha256Raw() != "dd" || write.GetBlobSha256() != "cc" || write.GetDiskRule() != "serial=QM1" ||
		write.GetRawSize() != 100 {
		t.Fatalf("the write is %v", write)
	}
	id, err := r.Store.Identities.IssueIdentity(t.Context(), inst.ID, r.Command(op).GetCommandId(), "t-new",
		"secret of t-new", Now())
	if err != nil || id.ImageDigest != "sha256:dd" || id.MachineID != "m-1" {
		t.Fatalf("identity %+v (%v)", id, err)
	}
	r.Decide(op, operation.Resulted{
		CommandID: r.Command(op).GetCommandId(), AgentID: inst.ID, StateID: "st-boot-ram",
		Outcome:  operation.OutcomeSucceeded,
		Evidence: map[string]string{evidence.ImageDigest: "sha256:dd"},
	})
	if d := r.Applied(); d.GetAssignments()[0].GetMode() != "disk" {
		t.Fatalf("the machine would boot %v", d.GetAssignments()[0])
	}
	r.Grant(op, inst, "st-boot-ram", "boot-ram")
	r.NewSystem(op)
	m := Machine(t, r.Store, "m-1")
	if got, err := r.Store.OperationQueries.GetOperation(t.Context(), op); err != nil ||
		got.GetPhase() != baremetalv1.Operation_SUCCEEDED ||
		m.GetStatus().GetOsImageDigest() != "sha256:dd" || Condition(m, fleet.Provisioned) == nil {
		t.Errorf("the operation is %v, the machine %v (%v)", got, m.GetStatus(), err)
	}
	for kind, want := range map[string]int{"power": 1, "repave": 1, "reboot": 1} {
		if n := Count(t, r.Store, "SELECT count(*) FROM commands WHERE operation_id = $1 AND kind = $2", op,
			kind); n != want {
			t.Errorf("%d commands of kind %s", n, kind)
		}
	}
	if n := Count(t, r.Store, "SELECT count(*) FROM boot_assignments WHERE mode = 'disk'"); n != 1 {
		t.Error("the machine does not boot from its disk")
	}
}

// NewSystem enrols the system that was written, with the token that it was handed.
func (r *MetalRig) NewSystem(op string) {
	r.T.Helper()
	fp := ""
	e, err := r.Store.Agents.Enroll(r.T.Context(), agentstore.EnrollRequest{TokenID: "t-new", Secret: "secret of t-new",
		PublicKeyDigest: []byte("new")},
		func(ctx context.Context, id string) (*agentstore.Signed, error) {
			c, err := NewSigner().Sign(ctx, id)
			fp = c.Fingerprint
			return c, err
		}, Now())
	if err != nil {
		r.T.Fatal(err)
	}
	a := Enrolled{ID: e.AgentID, Machine: "m-1", Fingerprint: fp}
	h := a.Hello("st-new", "boot-new")
	h.ImageDigest = "sha256:dd"
	waiting := Open(r.T, r.Store, h).Operations
	a.arrivedAs(r.T, r.Store, "st-new", MetalMAC)
	for _, id := range waiting {
		r.Decide(id, operation.SessionOpened{AgentID: a.ID, StateID: "st-new", BootID: "boot-new", OfTarget: true})
	}
}

func Exec(t testing.TB, s *store.Store, sql string) {
	t.Helper()
	if err := ExecSQL(t, s, sql); err != nil {
		t.Fatal(err)
	}
}

func Inputs(image string) kind.Inputs { return kind.Inputs{ImageRef: image} }
