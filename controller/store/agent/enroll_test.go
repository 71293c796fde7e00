package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

func TestThousandEnrolmentsWithOneToken(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	n := storetest.Token(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := storetest.NewSigner()
	errs := storetest.Together(t, 1000, func(ctx context.Context, i int) error {
		_, err := s.Agents.Enroll(ctx, storetest.EnrollWith(n, fmt.Sprintf("key %d", i)), g.Sign, storetest.Now())
		return err
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		storetest.WantReason(t, err, "BOOTSTRAP_TOKEN_INVALID")
	}
	certs, agents := storetest.Count(t, s, "SELECT count(*) FROM agent_certs"),
		storetest.Count(t, s, "SELECT count(*) FROM agents")
	if won != 1 || g.Count() != 1 || certs != 1 || agents != 1 {
		t.Errorf("%d got a certificate, %d were signed, %d recorded, %d agents", won, g.Count(), certs, agents)
	}
	if refusals := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'ENROLL_REFUSED'"); refusals != 999 {
		t.Errorf("%d refusals were audited", refusals)
	}
}

func TestLostAnswerIsGivenAgain(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	n := storetest.Token(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := storetest.NewSigner()
	first, err := s.Agents.Enroll(t.Context(), storetest.EnrollWith(n, "key"), g.Sign, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	errs := storetest.Together(t, 20, func(ctx context.Context, _ int) error {
		again, err := s.Agents.Enroll(ctx, storetest.EnrollWith(n, "key"), g.Sign, storetest.Now())
		if err == nil && (string(again.ChainPEM) != string(first.ChainPEM) || again.AgentID != first.AgentID ||
			!again.Again) {
			return fmt.Errorf("got %+v, first %+v", again, first)
		}
		return err
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if g.Count() != 1 {
		t.Errorf("%d signatures", g.Count())
	}
	if _, err := s.Agents.RevokeAgent(t.Context(), first.AgentID, "", "tester", "lost", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Agents.Enroll(t.Context(), storetest.EnrollWith(n, "key"), g.Sign, storetest.Now())
	storetest.WantReason(t, err, "BOOTSTRAP_TOKEN_INVALID")
}

// A crash between the signature and the commit uses nothing up; the certificate that nobody got opens no session.
func TestCrashWhileEnrolling(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	n := storetest.Token(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	g := storetest.NewSigner()
	before := storetest.Everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines", "audit_log")
	scope := failpoint.NewScope()
	scope.Set("enroll.after-sign", failpoint.Error())
	if _, err := s.Agents.Enroll(failpoint.With(t.Context(), scope), storetest.EnrollWith(n, "key"), g.Sign,
		storetest.Now()); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
	if after := storetest.Everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines",
		"audit_log"); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	scope = failpoint.NewScope()
	scope.Set("enroll.after-commit", failpoint.Error())
	if _, err := s.Agents.Enroll(failpoint.With(t.Context(), scope), storetest.EnrollWith(n, "key"), g.Sign,
		storetest.Now()); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
	again, err := s.Agents.Enroll(t.Context(), storetest.EnrollWith(n, "key"), g.Sign, storetest.Now())
	if err != nil || !again.Again || g.Count() != 2 {
		t.Errorf("%+v after %d signatures, %v", again, g.Count(), err)
	}
}

func TestBadTokensLookAlike(t *testing.T) {
	s := storetest.New(t)
	for _, id := range []string{"used", "expired", "revoked", "fresh", "gone"} {
		storetest.Register(t, s, "m-"+id)
	}
	used := storetest.Token(t, s, agentstore.NewToken{TokenID: "used", MachineID: "m-used"})
	g := storetest.NewSigner()
	if _, err := s.Agents.Enroll(t.Context(), storetest.EnrollWith(used, "key"), g.Sign, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	expired := storetest.Token(t, s, agentstore.NewToken{TokenID: "expired", MachineID: "m-expired",
		ExpiresAt: storetest.Now().Add(-time.Second)})
	revoked := storetest.Token(t, s, agentstore.NewToken{TokenID: "revoked", MachineID: "m-revoked"})
	if _, err := s.Agents.RevokeToken(t.Context(), "revoked", "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	fresh := storetest.Token(t, s, agentstore.NewToken{TokenID: "fresh", MachineID: "m-fresh"})
	wrong := storetest.EnrollWith(fresh, "key")
	wrong.Secret = "guess"
	gone := storetest.Token(t, s, agentstore.NewToken{TokenID: "gone", MachineID: "m-gone"})
	if _, err := s.Nodes.Delete(t.Context(), "m-gone", "tester", false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for name, r := range map[string]agentstore.EnrollRequest{
		"unknown": {TokenID: "no-such", Secret: "guess", PublicKeyDigest: []byte("key")}, "wrong secret": wrong,
		"used": storetest.EnrollWith(used, "another key"), "expired": storetest.EnrollWith(expired, "key"),
		"revoked":              storetest.EnrollWith(revoked, "key"),
		"of a deleted machine": storetest.EnrollWith(gone, "key"),
	} {
		_, err := s.Agents.Enroll(t.Context(), r, g.Sign, storetest.Now())
		texts[storetest.WantReason(t, err, "BOOTSTRAP_TOKEN_INVALID").Error()] = true
		if len(texts) != 1 {
			t.Fatalf("%s can be told apart: %v", name, texts)
		}
	}
	if g.Count() != 1 {
		t.Errorf("%d signatures", g.Count())
	}
	if _, err := s.Agents.Enroll(t.Context(), storetest.EnrollWith(fresh, "key"), g.Sign, storetest.Now()); err != nil {
		t.Errorf("a wrong guess used the token up: %v", err)
	}
}

func TestBoundTokens(t *testing.T) {
	s := storetest.New(t)
	good := agentstore.EnrollRequest{Region: "north", Provider: "fake",
		MACs: []string{"02:00:00:00:00:01", "02:00:00:00:00:0A"}, Serial: "SN1", PublicKeyDigest: []byte("key")}
	for i, c := range []struct {
		reason string
		bind   func(*agentstore.NewToken)
		spoil  func(*agentstore.EnrollRequest)
	}{
		{"REGION_PROVIDER_MISMATCH", func(n *agentstore.NewToken) { n.Region = "north" },
			func(r *agentstore.EnrollRequest) { r.Region = "south" }},
		{"REGION_PROVIDER_MISMATCH", func(n *agentstore.NewToken) { n.Provider = "fake" },
			func(r *agentstore.EnrollRequest) { r.Provider = "" }},
		{"HARDWARE_MISMATCH", func(n *agentstore.NewToken) { n.MAC = "02:00:00:00:00:0a" },
			func(r *agentstore.EnrollRequest) { r.MACs = r.MACs[:1] }},
		{"HARDWARE_MISMATCH", func(n *agentstore.NewToken) { n.Serial = "SN1" },
			func(r *agentstore.EnrollRequest) { r.Serial = "SN2" }},
	} {
		id := fmt.Sprintf("t-%d", i)
		storetest.Register(t, s, "m-"+id)
		n := agentstore.NewToken{TokenID: id, MachineID: "m-" + id}
		c.bind(&n)
		n = storetest.Token(t, s, n)
		r := good
		r.TokenID, r.Secret = n.TokenID, n.Secret
		bad := r
		c.spoil(&bad)
		g := storetest.NewSigner()
		before := storetest.Everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines")
		_, err := s.Agents.Enroll(t.Context(), bad, g.Sign, storetest.Now())
		storetest.WantReason(t, err, c.reason)
		if after := storetest.Everything(t, s, "bootstrap_tokens", "agents", "agent_certs", "machines"); after != before ||
			g.Count() != 0 {
			t.Errorf("%d: a mismatch changed something, or signed", i)
		}
		if _, err := s.Agents.Enroll(t.Context(), r, g.Sign, storetest.Now()); err != nil {
			t.Errorf("%d: after a mismatch: %v", i, err)
		}
	}
}

func TestEnrolmentMovesTheNode(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	states := []string{storetest.Machine(t, s, "m-1").GetStatus().GetNodeState().String()}
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	storetest.Lease(t, s)
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	log, total, err := s.Machines.NodeHistory(t.Context(), "m-1", 10, 0)
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
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	storetest.Lease(t, s)
	old := a.Hello("st-1", "boot-1")
	storetest.Open(t, s, old)
	g := storetest.NewSigner()
	var fp string
	sign := func(ctx context.Context, id string) (*agentstore.Signed, error) {
		c, err := g.Sign(ctx, id)
		c.Fingerprint = "fp-next"
		fp = c.Fingerprint
		return c, err
	}
	later := storetest.Now().Add(time.Second)
	first, err := s.Agents.Rotate(t.Context(), a.ID, []byte("next key"), sign, "ROTATE", later)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Agents.Rotate(t.Context(), a.ID, []byte("next key"), sign, "ROTATE", later)
	if err != nil || !again.Again || string(again.ChainPEM) != string(first.ChainPEM) || g.Count() != 1 {
		t.Errorf("%+v after %d signatures, %v", again, g.Count(), err)
	}
	storetest.Open(t, s, old) // both work until the first session on the new one
	next := old
	next.Fingerprint = fp
	storetest.Open(t, s, next)
	_, err = s.Sessions.OpenSession(t.Context(), old, storetest.Now())
	storetest.WantReason(t, err, "CERTIFICATE_REVOKED")
	storetest.Open(t, s, next)
	if gone, err := s.Agents.RevokeAgent(t.Context(), a.ID, fp, "tester", "", storetest.Now()); err != nil ||
		len(gone) != 1 {
		t.Fatalf("revoked %v, %v", gone, err)
	}
	_, err = s.Sessions.OpenSession(t.Context(), next, storetest.Now())
	storetest.WantReason(t, err, "CERTIFICATE_REVOKED")
	if gone, err := s.Agents.RevokedAmong(t.Context(), []string{fp, "fp-other"}); err != nil || len(gone) != 1 {
		t.Errorf("revoked among them: %v, %v", gone, err)
	}
}

func TestUnknownCertificatesOpenNothing(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	storetest.Register(t, s, "m-2")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	b := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-2", MachineID: "m-2"})
	h := a.Hello("st-1", "boot-1")
	for _, fp := range []string{"fp-unknown", b.Fingerprint} {
		h.Fingerprint = fp
		_, err := s.Sessions.OpenSession(t.Context(), h, storetest.Now())
		storetest.WantReason(t, err, "CERTIFICATE_UNKNOWN")
	}
	h.AgentID = "a-unknown"
	_, err := s.Sessions.OpenSession(t.Context(), h, storetest.Now())
	storetest.WantReason(t, err, "CERTIFICATE_UNKNOWN")
}

// An identity that was deleted never comes back, not even through an agent that had enrolled and never called.
func TestDeletedMachinesStayAway(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", "02:00:00:00:00:01")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	if _, err := s.Nodes.Delete(t.Context(), "m-1", "tester", false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sessions.OpenSession(t.Context(), a.Hello("st-1", "boot-1"), storetest.Now()); err == nil {
		t.Error("the agent of a deleted machine opens a session")
	}
	if m := storetest.Machine(t, s, "m-1"); m.GetStatus().GetBootId() != "" ||
		storetest.Condition(m, fleet.Reachable) != nil {
		t.Errorf("the deleted machine shows %v", m.GetStatus())
	}
	_, err := s.Agents.IssueToken(t.Context(), agentstore.NewToken{TokenID: "t-2", Role: "host", MachineID: "m-1",
		ExpiresAt: storetest.Now().Add(time.Hour)}, storetest.Now())
	storetest.WantReason(t, err, "MACHINE_DELETED")
	_, err = s.Agents.Rotate(t.Context(), a.ID, []byte("key"), storetest.NewSigner().Sign, "REENROLL", storetest.Now())
	storetest.WantReason(t, err, "REENROLL_REFUSED")
	storetest.Register(t, s, "m-2", "02:00:00:00:00:01") // its hardware is free again
}
