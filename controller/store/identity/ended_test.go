package identity_test

import (
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

func hello(v *identitystore.Vouched, boot string) sessionstore.Hello {
	return storetest.Enrolled{ID: v.AgentID, Machine: "m-1", Fingerprint: "fp-" + v.AgentID + "1"}.Hello("st-"+boot, boot)
}

func bootID(r *storetest.MetalRig) string {
	return storetest.Machine(r.T, r.Store, "m-1").GetStatus().GetBootId()
}

// TestInstallerEndsWithItsOperation: neither a new certificate nor a session nor an event is left of an installer whose
// operation has ended, and a crash at the end leaves either the operation or both.
func TestInstallerEndsWithItsOperation(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	op, token := r.Reimaging("1")
	v := r.Claim(token, "k", nil, false, storetest.Now())
	inst := r.Installer(v, "boot-ram")
	_, err := r.Store.Agents.Rotate(t.Context(), v.AgentID, []byte("next"), storetest.NewSigner().Sign, "ROTATE_CERT",
		storetest.Now())
	storetest.WantReason(t, err, "REENROLL_REFUSED")
	if bootID(r) != "boot-ram" {
		t.Fatalf("the machine is in boot %q", bootID(r))
	}

	end := operation.Quarantine{Reason: "ENROLMENT_CONTESTED", Message: "for the test"}
	crash := failpoint.NewScope()
	crash.Set("store.before-commit", failpoint.Error().At(1))
	if _, err := r.Store.Operations.Decide(failpoint.With(t.Context(), crash), op, end, storetest.Now()); err == nil {
		t.Fatal("no crash")
	}
	if _, err := r.Store.Sessions.OpenSession(t.Context(), hello(v, "boot-ram"), storetest.Now()); err != nil {
		t.Fatalf("the operation goes on, and its installer is refused: %v", err)
	}
	if a := r.Decide(op, end); !operation.IsTerminal(a.Phase) || len(a.Revoked) != 1 {
		t.Fatalf("the operation is %s, revoked are %v", a.Phase, a.Revoked)
	}
	_, err = r.Store.Sessions.OpenSession(t.Context(), hello(v, "boot-late"), storetest.Now())
	storetest.WantReason(t, err, "CERTIFICATE_REVOKED")
	key := sessionstore.EventKey{AgentID: inst.ID, StateID: "st-boot-ram", Seq: 7, InstallerOf: "m-1"}
	if err := r.Store.Sessions.InventoryEvent(t.Context(), key, "m-1", "h", []byte(`{"system": {"serial": "evil"}}`),
		false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, r.Store, "SELECT count(*) FROM inventories WHERE agent_id = $1", inst.ID); n != 0 {
		t.Error("an event after the end left an inventory")
	}
	if bootID(r) != "boot-ram" {
		t.Errorf("the machine is in boot %q", bootID(r))
	}
	if _, err := r.Vouch(token, "k", storetest.Now()); err == nil {
		t.Error("the assignment of an ended operation certifies an installer")
	}
}

// TestCertificateIsBoundedByTheOperation: what the steps may take with their retries is the life of an installer's
// certificate.
func TestCertificateIsBoundedByTheOperation(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	op, token := r.Reimaging("1")
	began := storetest.Now()
	v := r.Claim(token, "k", nil, false, began)
	limit := storetest.Count(t, r.Store,
		"SELECT sum(timeout_ms * (max_retries + 1)) / 1000 FROM operation_steps WHERE operation_id = $1", op)
	got := storetest.Count(t, r.Store,
		"SELECT extract(epoch FROM not_after - issued_at)::bigint FROM agent_certs WHERE agent_id = $1", v.AgentID)
	if slack := got - limit; slack < -1 || slack > 60 {
		t.Errorf("the certificate lasts %d s, the operation %d s", got, limit)
	}
}

// TestRescueOfTheFirstClaimer: a rescue system that its place on the network alone proves leaves its assignment to
// others for a while; one that is proven ends it by its first report. With the assignment ends the certificate.
func TestRescueOfTheFirstClaimer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proven bool
		wait   time.Duration // since the claim
		ends   bool
	}{
		"network, at once":  {false, 0, false},
		"network, later":    {false, 11 * time.Minute, true},
		"by TPM, at once":   {true, 0, true},
		"by TPM, and later": {true, 11 * time.Minute, true},
	} {
		r := storetest.NewMetalRig(t)
		op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "1",
			Type: fleet.Netboot}).GetOperationId()
		r.Decide(op, operation.Evaluate{})
		token := r.Applied().GetAssignments()[0].GetToken()
		r.Done(op, r.Site, "st-site", "boot-site", map[string]string{evidence.BootNext: "pxe " + storetest.MetalMAC})
		chip := key("ours")
		if !c.proven {
			chip = nil
		}
		v := r.Claim(token, "k", chip, c.proven, storetest.Now())
		if _, err := r.Store.Sessions.OpenSession(t.Context(), hello(v, "boot-ram"), storetest.Now()); err != nil {
			t.Fatal(err)
		}
		mode := func() string { return storetest.Machine(t, r.Store, "m-1").GetStatus().GetBootAssignment() }
		if mode() != "rescue" {
			t.Fatalf("%s: the first claimer has ended the assignment by its hello: it is %s", name, mode())
		}
		k := sessionstore.EventKey{AgentID: v.AgentID, StateID: "st-boot-ram", Seq: 1, InstallerOf: "m-1"}
		if err := r.Store.Sessions.SkipEvent(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Store.OperationQueries.GetOperation(t.Context(), op); err != nil ||
			got.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			t.Fatalf("%s: the operation is %v (%v)", name, got, err)
		}
		now := storetest.Now().Add(c.wait)
		revoked, err := r.Store.Operations.EndRescues(t.Context(), now.Add(-10*time.Minute), now)
		if err != nil || (len(revoked) == 1) != c.ends || (mode() == "disk") != c.ends {
			t.Errorf("%s: revoked %v, the assignment is %s (%v)", name, revoked, mode(), err)
		}
	}
}
