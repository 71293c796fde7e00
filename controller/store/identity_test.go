package store_test

import (
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/identity"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// claim asks for a certificate as a box with a TPM, nil for none. proven says that the box has activated a credential.
func (r *metalRig) claim(token, key string, chip *identity.Key, proven bool, at time.Time) *store.Vouched {
	r.Helper()
	v, err := r.s.Vouch(r.Context(), store.VouchRequest{
		SiteAgentID: r.site.id, MachineID: "m-1", BootToken: token, MAC: metalMAC, PublicKeyDigest: []byte(key), TPM: chip, Proven: proven,
	}, newSigner().sign, at)
	if err != nil {
		r.Fatal(err)
	}
	return v
}

// reimaging begins a reimage, and returns its boot token.
func (r *metalRig) reimaging(request string) (op, token string) {
	r.Helper()
	op = start(r.T, r.s, store.StartRequest{MachineID: "m-1", RequestID: request, Type: fleet.Reimage, Inputs: inputs("tiny")}).GetOperationId()
	r.decide(op, operation.Look{})
	return op, r.applied().GetAssignments()[0].GetToken()
}

func (r *metalRig) cancel(op string) {
	r.Helper()
	r.decide(op, operation.CancelAsked{Actor: "tester"})
	r.decide(op, operation.Quarantine{Reason: "OUTCOME_UNKNOWN", Message: "the test is done with it"})
}

func key(digest string) *identity.Key { return &identity.Key{Digest: []byte(digest)} }

// verbs counts the audit rows of the machine by their verb.
func (r *metalRig) verbs(verb string) int {
	r.Helper()
	return count(r.T, r.s, "SELECT count(*) FROM audit_log WHERE target_id = 'm-1' AND verb = $1", verb)
}

// TestTPMIsRecordedByItsProof: showing a key records nothing; the proof does, and then no other box is certified for the
// machine until an admin forgets the key.
func TestTPMIsRecordedByItsProof(t *testing.T) {
	t.Parallel()
	r := newMetalRig(t)
	op, token := r.reimaging("1")
	if v := r.claim(token, "k", key("ours"), false, now()); !v.Challenge || v.AgentID != "" {
		t.Fatalf("a shown key got %+v", v)
	}
	if m, err := r.s.GetMachine(t.Context(), "m-1", ""); err != nil || m.GetStatus().GetTpm() != nil {
		t.Fatalf("a key was recorded that nobody has proven: %v, %v", m.GetStatus().GetTpm(), err)
	}
	v := r.claim(token, "k", key("ours"), true, now())
	if v.AgentID == "" {
		t.Fatalf("a proven key got %+v", v)
	}
	m, err := r.s.GetMachine(t.Context(), "m-1", "")
	if err != nil || m.GetStatus().GetIdentityLevel() != "tpm" || m.GetStatus().GetTpm().GetTrust() != "first-use" {
		t.Fatalf("the machine shows %v (%v)", m.GetStatus(), err)
	}
	r.cancel(op)
	_, token = r.reimaging("2")
	at := now()
	for i, chip := range []*identity.Key{nil, key("other"), nil, key("other"), nil} {
		v := r.claim(token, "k2", chip, chip != nil, at.Add(time.Duration(i)*time.Second))
		if v.Refused == nil || v.Contested || v.AgentID != "" {
			t.Fatalf("another box got %+v", v)
		}
	}
	if n := r.verbs("REFUSE_INSTALLER"); n == 0 || n > 5 {
		t.Errorf("%d rows in the audit log", n)
	}
	if v := r.claim(token, "k3", key("ours"), true, now()); v.AgentID == "" {
		t.Errorf("the machine itself got %+v", v)
	}
	if _, err := r.s.ForgetTPM(t.Context(), "m-1", "ann", "board", now()); err != nil {
		t.Fatal(err)
	}
	if n := r.verbs("FORGET_TPM"); n != 1 {
		t.Errorf("%d rows of FORGET_TPM", n)
	}
}

// TestRefusedBoxesAreReportedOnceAMinute: a box that asks again and again costs one row a minute.
func TestRefusedBoxesAreReportedOnceAMinute(t *testing.T) {
	t.Parallel()
	r := newMetalRig(t)
	op, token := r.reimaging("1")
	r.claim(token, "k", key("ours"), true, now())
	r.cancel(op)
	_, token = r.reimaging("2")
	at, reported := now(), 0
	for i := range 120 {
		if r.claim(token, "k2", nil, false, at.Add(time.Duration(i)*time.Second)).Report {
			reported++
		}
	}
	if n := r.verbs("REFUSE_INSTALLER"); n != 2 || reported != 2 {
		t.Errorf("%d rows and %d reports in two minutes", n, reported)
	}
}

// TestTwoClaimsAtTheFirstUse: which of two boxes is the machine can't be known while its key is first recorded.
func TestTwoClaimsAtTheFirstUse(t *testing.T) {
	t.Parallel()
	r := newMetalRig(t)
	_, token := r.reimaging("1")
	r.claim(token, "k", key("ours"), true, now())
	if v := r.claim(token, "k2", key("other"), false, now()); !v.Contested || v.AgentID != "" {
		t.Errorf("the second claim got %+v", v)
	}
}

// TestOneKeyIsOneMachine: a TPM that another machine is known by is refused.
func TestOneKeyIsOneMachine(t *testing.T) {
	t.Parallel()
	r := newMetalRig(t)
	exec(t, r.s, `INSERT INTO sites (site) VALUES ('elsewhere')`)
	if _, err := r.s.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-2", Spec: &baremetalv1.MachineSpec{Site: "elsewhere"}}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	exec(t, r.s, `UPDATE machines SET tpm_key_digest = 'ours', tpm_key_trust = 'first-use', tpm_key_at = now() WHERE machine_id = 'm-2'`)
	_, token := r.reimaging("1")
	if v := r.claim(token, "k", key("ours"), true, now()); v.Refused == nil || v.Refused.Reason != "TPM_KEY_TAKEN" {
		t.Errorf("got %+v", v)
	}
}

// TestRequiredLevel: where tpm is required, an installation is refused before it starts, as long as no TPM is recorded;
// an installer that is under way is refused too.
func TestRequiredLevel(t *testing.T) {
	t.Parallel()
	for name, require := range map[string]func(r *metalRig) error{
		"site": func(r *metalRig) error {
			return r.s.RequireIdentity(t.Context(), "lab", "", identity.LevelTPM, "ann", "", now())
		},
		"group": func(r *metalRig) error {
			return r.s.RequireIdentity(t.Context(), "", "g", identity.LevelTPM, "ann", "", now())
		},
	} {
		r := newMetalRig(t)
		exec(t, r.s, `UPDATE machines SET spec = spec || '{"group": "g"}' WHERE machine_id = 'm-1'`)
		op, token := r.reimaging("1")
		if err := require(r); err != nil {
			t.Fatal(err)
		}
		for _, chip := range []*identity.Key{nil, key("ours")} {
			if v := r.claim(token, "k", chip, true, now()); v.Refused == nil || v.Refused.Reason != "IDENTITY_LEVEL_TOO_LOW" {
				t.Errorf("%s: an installer got %+v", name, v)
			}
		}
		r.cancel(op)
		_, _, err := r.s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "2", Type: fleet.Reimage, Inputs: inputs("tiny")}, now())
		if f := failure.From(err); f.Reason != "IDENTITY_LEVEL_TOO_LOW" || !strings.Contains(f.Message, "ingot netboot") {
			t.Errorf("%s: a reimage: %v", name, err)
		}
	}
}

// TestIdentityIsEvidence: the operation says how its installer proved which machine it is.
func TestIdentityIsEvidence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chip *identity.Key
		want map[string]string
	}{
		"tpm":     {key("ours"), map[string]string{evidence.IdentityLevel: "tpm", evidence.IdentityTrust: "first-use"}},
		"vendor":  {&identity.Key{Digest: []byte("ours"), Vendor: true}, map[string]string{evidence.IdentityLevel: "tpm", evidence.IdentityTrust: "vendor"}},
		"network": {nil, map[string]string{evidence.IdentityLevel: "network", evidence.Corroboration: "uncorroborated"}},
	} {
		r := newMetalRig(t)
		op, token := r.reimaging("1")
		r.done(op, r.site, "st-site", "boot-site", map[string]string{"power": "on", evidence.PowerOffSeenAt: "2026-01-01T00:00:00Z", evidence.PowerOnSeenAt: "2026-01-01T00:00:01Z"})
		inst := r.installer(r.claim(token, "k", c.chip, true, now()), "boot-ram")
		r.done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.ImageDigest: "sha256:dd"})
		got, err := r.s.GetOperation(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.want {
			if got.GetEvidence()[k] != v {
				t.Errorf("%s: evidence %v, want %s=%s", name, got.GetEvidence(), k, v)
			}
		}
	}
}
