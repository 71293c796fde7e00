package identity_test

import (
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

func key(digest string) *identity.Key { return &identity.Key{Digest: []byte(digest)} }

// TestTPMIsRecordedByItsProof: showing a key records nothing; the proof does, and then no other box is certified for
// the machine until an admin forgets the key.
func TestTPMIsRecordedByItsProof(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	op, token := r.Reimaging("1")
	if v := r.Claim(token, "k", key("ours"), false, storetest.Now()); !v.Challenge || v.AgentID != "" {
		t.Fatalf("a shown key got %+v", v)
	}
	if m, err := r.Store.Machines.GetMachine(t.Context(), "m-1", ""); err != nil || m.GetStatus().GetTpm() != nil {
		t.Fatalf("a key was recorded that nobody has proven: %v, %v", m.GetStatus().GetTpm(), err)
	}
	v := r.Claim(token, "k", key("ours"), true, storetest.Now())
	if v.AgentID == "" {
		t.Fatalf("a proven key got %+v", v)
	}
	m, err := r.Store.Machines.GetMachine(t.Context(), "m-1", "")
	if err != nil || m.GetStatus().GetIdentityLevel() != "tpm" || m.GetStatus().GetTpm().GetTrust() != "first-use" {
		t.Fatalf("the machine shows %v (%v)", m.GetStatus(), err)
	}
	r.Cancel(op)
	_, token = r.Reimaging("2")
	at := storetest.Now()
	for i, chip := range []*identity.Key{nil, key("other"), nil, key("other"), nil} {
		v := r.Claim(token, "k2", chip, chip != nil, at.Add(time.Duration(i)*time.Second))
		if v.Refused == nil || v.Contested || v.AgentID != "" {
			t.Fatalf("another box got %+v", v)
		}
	}
	if n := r.Verbs("REFUSE_INSTALLER"); n == 0 || n > 5 {
		t.Errorf("%d rows in the audit log", n)
	}
	if v := r.Claim(token, "k3", key("ours"), true, storetest.Now()); v.AgentID == "" {
		t.Errorf("the machine itself got %+v", v)
	}
	if _, err := r.Store.Identities.ForgetTPM(t.Context(), "m-1", "ann", "board", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if n := r.Verbs("FORGET_TPM"); n != 1 {
		t.Errorf("%d rows of FORGET_TPM", n)
	}
}

// TestRefusedBoxesAreReportedOnceAMinute: a box that asks again and again costs one row a minute.
func TestRefusedBoxesAreReportedOnceAMinute(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	op, token := r.Reimaging("1")
	r.Claim(token, "k", key("ours"), true, storetest.Now())
	r.Cancel(op)
	_, token = r.Reimaging("2")
	at, reported := storetest.Now(), 0
	for i := range 120 {
		if r.Claim(token, "k2", nil, false, at.Add(time.Duration(i)*time.Second)).Report {
			reported++
		}
	}
	if n := r.Verbs("REFUSE_INSTALLER"); n != 2 || reported != 2 {
		t.Errorf("%d rows and %d reports in two minutes", n, reported)
	}
}

// TestTwoClaimsAtTheFirstUse: which of two boxes is the machine can't be known while its key is first recorded.
func TestTwoClaimsAtTheFirstUse(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	_, token := r.Reimaging("1")
	r.Claim(token, "k", key("ours"), true, storetest.Now())
	if v := r.Claim(token, "k2", key("other"), false, storetest.Now()); !v.Contested || v.AgentID != "" {
		t.Errorf("the second claim got %+v", v)
	}
}

// TestOneKeyIsOneMachine: a TPM that another machine is known by is refused.
func TestOneKeyIsOneMachine(t *testing.T) {
	t.Parallel()
	r := storetest.NewMetalRig(t)
	storetest.Exec(t, r.Store, `INSERT INTO sites (site) VALUES ('elsewhere')`)
	if _, err := r.Store.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-2",
		Spec: &baremetalv1.MachineSpec{Site: "elsewhere"}}, "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.Exec(
		t,
		r.Store,
		`UPDATE machines SET tpm_key_digest = 'ours', tpm_key_trust = 'first-use', tpm_key_at = now() WHERE machine_id = 'm-2'`,
	)
	_, token := r.Reimaging("1")
	if v := r.Claim(token, "k", key("ours"), true, storetest.Now()); v.Refused == nil ||
		v.Refused.Reason != "TPM_KEY_TAKEN" {
		t.Errorf("got %+v", v)
	}
}

// TestRequiredLevel: where tpm is required, an installation is refused before it starts, as long as no TPM is recorded;
// an installer that is under way is refused too.
func TestRequiredLevel(t *testing.T) {
	t.Parallel()
	for name, require := range map[string]func(r *storetest.MetalRig) error{
		"site": func(r *storetest.MetalRig) error {
			return r.Store.Identities.RequireIdentity(t.Context(), "lab", "", identity.LevelTPM, "ann", "", storetest.Now())
		},
		"group": func(r *storetest.MetalRig) error {
			return r.Store.Identities.RequireIdentity(t.Context(), "", "g", identity.LevelTPM, "ann", "", storetest.Now())
		},
	} {
		r := storetest.NewMetalRig(t)
		storetest.Exec(t, r.Store, `UPDATE machines SET spec = spec || '{"group": "g"}' WHERE machine_id = 'm-1'`)
		op, token := r.Reimaging("1")
		if err := require(r); err != nil {
			t.Fatal(err)
		}
		for _, chip := range []*identity.Key{nil, key("ours")} {
			if v := r.Claim(token, "k", chip, true, storetest.Now()); v.Refused == nil ||
				v.Refused.Reason != "IDENTITY_LEVEL_TOO_LOW" {
				t.Errorf("%s: an installer got %+v", name, v)
			}
		}
		r.Cancel(op)
		_, _, err := r.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "2",
			Type: fleet.Reimage, Inputs: storetest.Inputs("tiny")}, storetest.Now())
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
		"tpm": {key("ours"), map[string]string{evidence.IdentityLevel: "tpm", evidence.IdentityTrust: "first-use"}},
		"vendor": {&identity.Key{Digest: []byte("ours"), Vendor: true},
			map[string]string{evidence.IdentityLevel: "tpm", evidence.IdentityTrust: "vendor"}},
		"network": {nil, map[string]string{evidence.IdentityLevel: "network", evidence.Corroboration: "uncorroborated"}},
	} {
		r := storetest.NewMetalRig(t)
		op, token := r.Reimaging("1")
		r.Done(op, r.Site, "st-site", "boot-site",
			map[string]string{"power": "on", evidence.PowerOffSeenAt: "2026-01-01T00:00:00Z",
				evidence.PowerOnSeenAt: "2026-01-01T00:00:01Z"})
		inst := r.Installer(r.Claim(token, "k", c.chip, true, storetest.Now()), "boot-ram")
		r.Done(op, inst, "st-boot-ram", "boot-ram", map[string]string{evidence.ImageDigest: "sha256:dd"})
		got, err := r.Store.OperationQueries.GetOperation(t.Context(), op)
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
