package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

func TestThousandEnrolmentsWithOneToken(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	n := token(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := newSigner()
	errs := together(t, 1000, func(ctx context.Context, i int) error {
		_, err := s.Enroll(ctx, enrollWith(n, fmt.Sprintf("key %d", i)), g.sign, now())
		return err
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantReason(t, err, "BOOTSTRAP_TOKEN_INVALID")
	}
	certs, agents := count(t, s, "SELECT count(*) FROM agent_certs"), count(t, s, "SELECT count(*) FROM agents")
	if won != 1 || g.count() != 1 || certs != 1 || agents != 1 {
		t.Errorf("%d got a certificate, %d were signed, %d recorded, %d agents", won, g.count(), certs, agents)
	}
	if refusals := count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'ENROLL_REFUSED'"); refusals != 999 {
		t.Errorf("%d refusals were audited", refusals)
	}
}

func TestLostAnswerIsGivenAgain(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	n := token(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := newSigner()
	first, err := s.Enroll(t.Context(), enrollWith(n, "key"), g.sign, now())
	if err != nil {
		t.Fatal(err)
	}
	errs := together(t, 20, func(ctx context.Context, _ int) error {
		again, err := s.Enroll(ctx, enrollWith(n, "key"), g.sign, now())
		if err == nil && (string(again.ChainPEM) != string(first.ChainPEM) || again.AgentID != first.AgentID || !again.Again) {
			return fmt.Errorf("got %+v, first %+v", again, first)
		}
		return err
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if g.count() != 1 {
		t.Errorf("%d signatures", g.count())
	}
	if _, err := s.RevokeAgent(t.Context(), first.AgentID, "", "tester", "lost", now()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Enroll(t.Context(), enrollWith(n, "key"), g.sign, now())
	wantReason(t, err, "BOOTSTRAP_TOKEN_INVALID")
}

// A crash between the signature and the commit uses nothing up; the certificate that nobody got opens no session.
func TestCrashWhileEnrolling(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	n := token(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := newSigner()
	before := everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines", "audit_log")
	scope := failpoint.NewScope()
	scope.Set("enroll.after-sign", failpoint.Error())
	if _, err := s.Enroll(failpoint.With(t.Context(), scope), enrollWith(n, "key"), g.sign, now()); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
	if after := everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines", "audit_log"); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	scope = failpoint.NewScope()
	scope.Set("enroll.after-commit", failpoint.Error())
	if _, err := s.Enroll(failpoint.With(t.Context(), scope), enrollWith(n, "key"), g.sign, now()); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
	again, err := s.Enroll(t.Context(), enrollWith(n, "key"), g.sign, now())
	if err != nil || !again.Again || g.count() != 2 {
		t.Errorf("%+v after %d signatures, %v", again, g.count(), err)
	}
}

func TestBadTokensLookAlike(t *testing.T) {
	s := storetest.New(t)
	for _, id := range []string{"used", "expired", "revoked", "fresh", "gone"} {
		register(t, s, "m-"+id)
	}
	used := token(t, s, store.NewToken{TokenID: "used", MachineID: "m-used"})
	g := newSigner()
	if _, err := s.Enroll(t.Context(), enrollWith(used, "key"), g.sign, now()); err != nil {
		t.Fatal(err)
	}
	expired := token(t, s, store.NewToken{TokenID: "expired", MachineID: "m-expired", ExpiresAt: now().Add(-time.Second)})
	revoked := token(t, s, store.NewToken{TokenID: "revoked", MachineID: "m-revoked"})
	if _, err := s.RevokeToken(t.Context(), "revoked", "tester", now()); err != nil {
		t.Fatal(err)
	}
	fresh := token(t, s, store.NewToken{TokenID: "fresh", MachineID: "m-fresh"})
	wrong := enrollWith(fresh, "key")
	wrong.Secret = "guess"
	gone := token(t, s, store.NewToken{TokenID: "gone", MachineID: "m-gone"})
	if _, err := s.Delete(t.Context(), "m-gone", "tester", false, now()); err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for name, r := range map[string]store.EnrollRequest{
		"unknown": {TokenID: "no-such", Secret: "guess", PublicKeyDigest: []byte("key")}, "wrong secret": wrong,
		"used": enrollWith(used, "another key"), "expired": enrollWith(expired, "key"), "revoked": enrollWith(revoked, "key"),
		"of a deleted machine": enrollWith(gone, "key"),
	} {
		_, err := s.Enroll(t.Context(), r, g.sign, now())
		texts[wantReason(t, err, "BOOTSTRAP_TOKEN_INVALID").Error()] = true
		if len(texts) != 1 {
			t.Fatalf("%s can be told apart: %v", name, texts)
		}
	}
	if g.count() != 1 {
		t.Errorf("%d signatures", g.count())
	}
	if _, err := s.Enroll(t.Context(), enrollWith(fresh, "key"), g.sign, now()); err != nil {
		t.Errorf("a wrong guess used the token up: %v", err)
	}
}

func TestBoundTokens(t *testing.T) {
	s := storetest.New(t)
	good := store.EnrollRequest{Region: "north", Provider: "fake", MACs: []string{"02:00:00:00:00:01", "02:00:00:00:00:0A"}, Serial: "SN1", PublicKeyDigest: []byte("key")}
	for i, c := range []struct {
		reason string
		bind   func(*store.NewToken)
		spoil  func(*store.EnrollRequest)
	}{
		{"REGION_PROVIDER_MISMATCH", func(n *store.NewToken) { n.Region = "north" }, func(r *store.EnrollRequest) { r.Region = "south" }},
		{"REGION_PROVIDER_MISMATCH", func(n *store.NewToken) { n.Provider = "fake" }, func(r *store.EnrollRequest) { r.Provider = "" }},
		{"HARDWARE_MISMATCH", func(n *store.NewToken) { n.MAC = "02:00:00:00:00:0a" }, func(r *store.EnrollRequest) { r.MACs = r.MACs[:1] }},
		{"HARDWARE_MISMATCH", func(n *store.NewToken) { n.Serial = "SN1" }, func(r *store.EnrollRequest) { r.Serial = "SN2" }},
	} {
		id := fmt.Sprintf("t-%d", i)
		register(t, s, "m-"+id)
		n := store.NewToken{TokenID: id, MachineID: "m-" + id}
		c.bind(&n)
		n = token(t, s, n)
		r := good
		r.TokenID, r.Secret = n.TokenID, n.Secret
		bad := r
		c.spoil(&bad)
		g := newSigner()
		before := everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines")
		_, err := s.Enroll(t.Context(), bad, g.sign, now())
		wantReason(t, err, c.reason)
		if after := everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines"); after != before || g.count() != 0 {
			t.Errorf("%d: a mismatch changed something, or signed", i)
		}
		if _, err := s.Enroll(t.Context(), r, g.sign, now()); err != nil {
			t.Errorf("%d: after a mismatch: %v", i, err)
		}
	}
}

func TestEnrolmentMovesTheNode(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	states := []string{machine(t, s, "m-1").GetStatus().GetNodeState().String()}
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	lease(t, s)
	open(t, s, a.hello("st-1", "boot-1"))
	log, total, err := s.NodeHistory(t.Context(), "m-1", 10, 0)
	if err != nil || total != 3 {
		t.Fatalf("%d changes, %v", total, err)
	}
	for i := range log {
		states = append(states, log[len(log)-1-i].GetToState().String())
	}
	want := []string{"NODE_STATE_DISCOVERED", "NODE_STATE_BOOTSTRAP_ISSUED", "NODE_STATE_ENROLLING", "NODE_STATE_ACTIVE"}
	if fmt.Sprint(states) != fmt.Sprint(want) {
		t.Errorf("states %v, want %v", states, want)
	}
}

func TestRotation(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	lease(t, s)
	old := a.hello("st-1", "boot-1")
	open(t, s, old)
	g := newSigner()
	var fp string
	sign := func(ctx context.Context, id string) (*store.Signed, error) {
		c, err := g.sign(ctx, id)
		c.Fingerprint = "fp-next"
		fp = c.Fingerprint
		return c, err
	}
	later := now().Add(time.Second)
	first, err := s.Rotate(t.Context(), a.id, []byte("next key"), sign, "ROTATE", later)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Rotate(t.Context(), a.id, []byte("next key"), sign, "ROTATE", later)
	if err != nil || !again.Again || string(again.ChainPEM) != string(first.ChainPEM) || g.count() != 1 {
		t.Errorf("%+v after %d signatures, %v", again, g.count(), err)
	}
	open(t, s, old) // both work until the first session on the new one
	next := old
	next.Fingerprint = fp
	open(t, s, next)
	_, err = s.OpenSession(t.Context(), old, now())
	wantReason(t, err, "CERTIFICATE_REVOKED")
	open(t, s, next)
	if gone, err := s.RevokeAgent(t.Context(), a.id, fp, "tester", "", now()); err != nil || len(gone) != 1 {
		t.Fatalf("revoked %v, %v", gone, err)
	}
	_, err = s.OpenSession(t.Context(), next, now())
	wantReason(t, err, "CERTIFICATE_REVOKED")
	if gone, err := s.RevokedAmong(t.Context(), []string{fp, "fp-other"}); err != nil || len(gone) != 1 {
		t.Errorf("revoked among them: %v, %v", gone, err)
	}
}

func TestUnknownCertificatesOpenNothing(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	register(t, s, "m-2")
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	b := enrol(t, s, store.NewToken{TokenID: "t-2", MachineID: "m-2"})
	h := a.hello("st-1", "boot-1")
	for _, fp := range []string{"fp-unknown", b.fingerprint} {
		h.Fingerprint = fp
		_, err := s.OpenSession(t.Context(), h, now())
		wantReason(t, err, "CERTIFICATE_UNKNOWN")
	}
	h.AgentID = "a-unknown"
	_, err := s.OpenSession(t.Context(), h, now())
	wantReason(t, err, "CERTIFICATE_UNKNOWN")
}

// An identity that was deleted never comes back, not even through an agent that had enrolled and never called.
func TestDeletedMachinesStayAway(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1", "02:00:00:00:00:01")
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	if _, err := s.Delete(t.Context(), "m-1", "tester", false, now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenSession(t.Context(), a.hello("st-1", "boot-1"), now()); err == nil {
		t.Error("the agent of a deleted machine opens a session")
	}
	if m := machine(t, s, "m-1"); m.GetStatus().GetBootId() != "" || condition(m, fleet.Reachable) != nil {
		t.Errorf("the deleted machine shows %v", m.GetStatus())
	}
	_, err := s.IssueToken(t.Context(), store.NewToken{TokenID: "t-2", Role: "host", MachineID: "m-1", ExpiresAt: now().Add(time.Hour)}, now())
	wantReason(t, err, "MACHINE_DELETED")
	_, err = s.Rotate(t.Context(), a.id, []byte("key"), newSigner().sign, "REENROLL", now())
	wantReason(t, err, "REENROLL_REFUSED")
	register(t, s, "m-2", "02:00:00:00:00:01") // its hardware is free again
}
