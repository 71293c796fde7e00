package standby

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// hello opens a session with the certificate of an agent that is stopped, and shows a grant.
func hello(t *testing.T, c *harness.Cluster, m *harness.Machine, stateID string, g *fleetv1.StartedGrant) {
	t.Helper()
	stream, err := c.FleetClient(rig.AgentCert(t, m)).Commands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{
		StateId: stateID, BootId: "boot", Roles: []string{"host"}, LastGrantSeq: 1 << 40, LastEventSeq: 1 << 40,
		StartedGrant: g,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

// signed is a grant for a command of a machine, by a key.
func signed(t *testing.T, key ed25519.PrivateKey, m *harness.Machine, stateID, command string) *fleetv1.StartedGrant {
	t.Helper()
	digest := sha256.Sum256([]byte(command))
	claims := pki.GrantClaims{
		CommandID: command, TargetID: m.ID, AgentID: m.Identity().AgentID, StateID: stateID, Nonce: []byte("nonce"),
		Digest: digest[:], Seq: 9,
		IssuedAtUnixMs: time.Now().UnixMilli(),
	}
	sig, err := pki.SignGrant(key, claims)
	if err != nil {
		t.Fatal(err)
	}
	return &fleetv1.StartedGrant{StateId: stateID, Grant: &fleetv1.Grant{
		CommandId: command, TargetId: m.ID, Digest: claims.Digest, Nonce: claims.Nonce, Seq: claims.Seq,
		IssuedAtUnixMs: claims.IssuedAtUnixMs, Signature: sig,
	}}
}

// TestOnlyAControllersSignatureProvesThatTheDatabaseWentBack: an agent that makes commands up freezes nothing.
func TestOnlyAControllersSignatureProvesThatTheDatabaseWentBack(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	rig.Ended(t, c.Wait(rig.Reboot(t, c.Client, m.ID, "r", rig.PatientTime).GetOperationId(), rig.Soon), rig.Succeeded, "")
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	own, stateID := startedGrant(t, m)
	frozen := func() *baremetalv1.ServerInfo {
		return harness.Must(t, c.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
	}
	other := proto.CloneOf(own)
	other.Grant.CommandId = "cmd-made-up"
	higher := proto.CloneOf(own)
	higher.Grant.Seq += 1000
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, g := range map[string]*fleetv1.StartedGrant{
		"its own grant": own, "its own for another command": other, "its own under a higher number": higher,
		"a stranger's": signed(t, stranger, m, stateID, "cmd-strange"), "none": nil, "an empty one": {},
	} {
		hello(t, c, m, stateID, g)
		if i := frozen(); i.GetFrozenSince() != nil {
			t.Fatalf("%s froze the fleet: %s", what, i.GetFrozenBecause())
		}
	}
	lost := signed(t, c.Authority().GrantKey(), m, stateID, "cmd-lost")
	hello(t, c, m, stateID, lost)
	if i := frozen(); i.GetFrozenReason() != "DATABASE_WENT_BACK" {
		t.Fatalf("a grant that only a controller can have signed, and that the database does not know, froze nothing: %v", i)
	}
	if code, out := c.Ingot("server", "thaw", "--comment", "known"); code != 0 {
		t.Fatal(out)
	}
	<-time.After(2 * time.Second) // the controller ends its sessions when it learns of the other incarnation
	hello(t, c, m, stateID, lost)
	if i := frozen(); i.GetFrozenSince() != nil {
		t.Errorf("what an admin knows already froze the fleet again: %s", i.GetFrozenBecause())
	}
}

// startedGrant reads what a stopped agent shows of the last grant that it has begun a command under.
func startedGrant(t *testing.T, m *harness.Machine) (*fleetv1.StartedGrant, string) {
	t.Helper()
	s, err := state.Open(t.Context(), state.Config{Dir: m.StateDir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	meta, err := s.Meta(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := &fleetv1.StartedGrant{}
	if err := proto.Unmarshal([]byte(meta.StartedGrant), g); err != nil || g.GetGrant().GetCommandId() == "" {
		t.Fatalf("the agent keeps no grant: %v, %v", g, err)
	}
	return g, meta.StateID
}

// TestGrantsWaitForEveryControllerThatIsAlive: one that hangs at a promotion may have seen what the new primary lacks.
func TestGrantsWaitForEveryControllerThatIsAlive(t *testing.T) {
	t.Parallel()
	p := openPair(t, false, nil)
	r := harness.NewTrioOn(t, p.URL())
	m := workers(t, r.Client, 1)[0]
	r.Controllers[2].Process.Stand()
	stood := time.Now()
	promoted := failOver(t, p)
	var op *baremetalv1.Operation
	testkit.Eventually(t, rig.Soon, func() bool {
		var err error
		op, err = harness.Call(t, r.Machines().RebootMachine,
			&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "r", TimeoutSeconds: rig.PatientTime})
		return err == nil
	}, "no work is accepted after the promotion")
	accepted := time.Now()
	granted := r.WaitCommand(m.ID, "granted", func(k *baremetalv1.Command) bool {
		return k.GetOperationId() == op.GetOperationId() && k.GetGrantedAt() != nil
	}).GetGrantedAt().AsTime()
	// The one that hangs has renewed its lease within a sixth of it before it stood, and may come back until the lease
	// ends.
	const hangs = rig.Lease - rig.Lease/6 - 500*time.Millisecond
	if accepted.Sub(stood) < hangs && granted.Sub(stood) < hangs {
		t.Errorf("granted %v after a controller hung whose lease lasts at least %v", granted.Sub(stood), hangs)
	}
	rig.Ended(t, r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	t.Logf("promoted %v, accepted %v, granted %v after the controller hung (lease %v)",
		promoted.Sub(stood).Round(time.Millisecond),
		accepted.Sub(stood).Round(time.Millisecond), granted.Sub(stood).Round(time.Millisecond), rig.Lease)
	r.Controllers[2].Process.Continue()
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}
