package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/agent"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// knownCerts reads certificates; nil for one that is not recorded.
func (s *Store) knownCerts(ctx context.Context, fingerprints []string) ([]*Cert, error) {
	rows, err := s.db.Q.KnownCerts(ctx, fingerprints)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	by := map[string]*Cert{}
	for _, c := range rows {
		by[c.Fingerprint] = &Cert{
			Fingerprint: c.Fingerprint, AgentID: c.AgentID, PublicKeyDigest: c.PublicKeyDigest, NotAfter: c.NotAfter,
			Revoked: c.Revoked, Replaced: c.Replaced,
		}
	}
	out := make([]*Cert, len(fingerprints))
	for i, f := range fingerprints {
		out[i] = by[f]
	}
	return out, nil
}

// NewToken describes a bootstrap token to be issued.
type NewToken struct {
	TokenID, Secret, Role, MachineID, Site string
	Region, Provider, MAC, Serial          string
	ExpiresAt                              time.Time
	Actor                                  string
	// RequestID names the request, unless it is empty; Body is what makes two requests the same.
	RequestID string
	Body      map[string]string
	// SecretOf returns the secret of a token that an earlier try of the request has made.
	SecretOf func(tokenID string) string
}

// HashSecret is how a token's secret is stored.
func HashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// IssueToken stores a token by the hash of its secret. For a host it moves a discovered machine to bootstrap_issued.
func (s *Store) IssueToken(ctx context.Context, t NewToken, now time.Time) (*baremetalv1.BootstrapToken, error) {
	body, err := pgtx.JSONMap(t.Body)
	if err != nil {
		return nil, err
	}
	id := t.TokenID
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		i, err := issueOf(ctx, q, t)
		if err != nil {
			return err
		}
		if err := i.Refuse(now); err != nil {
			return err
		}
		if i.Machine != nil && i.Machine.State == fleet.Discovered {
			if err := nodestate.MoveNode(ctx, q, t.MachineID, node.BootstrapIssued, node.Admin, t.Actor, "", nil,
				now); err != nil {
				return err
			}
		}
		if i.Earlier != nil {
			id = i.Earlier.TokenID
			return nil
		}
		id = t.TokenID
		err = q.InsertToken(ctx, dbsqlc.InsertTokenParams{
			TokenID: t.TokenID, SecretHash: HashSecret(t.Secret), Role: t.Role, MachineID: pgtx.StrPtr(t.MachineID),
			Site:        t.Site,
			BoundRegion: t.Region, BoundProvider: t.Provider, BoundMac: pgtx.StrPtr(t.MAC), BoundSerial: t.Serial,
			CreatedAt: now, ExpiresAt: t.ExpiresAt, RequestID: t.RequestID, RequestBody: body,
		})
		if err != nil {
			return fmt.Errorf("insert token: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: t.Actor, Verb: "ISSUE_TOKEN", Target: t.MachineID, Request: t.RequestID,
			Data: map[string]string{"token_id": t.TokenID, "role": t.Role},
		}, now)
	})
	if pgtx.UniqueViolation(err, "bootstrap_tokens_request") {
		// The same request at the same time: the other one won, and this one finds its token.
		return s.IssueToken(ctx, t, now)
	}
	if err != nil {
		return nil, fmt.Errorf("issue token: %w", err)
	}
	row, err := s.db.Q.GetToken(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	return tokenMessage(dbsqlc.ListTokensRow{
		TokenID: row.TokenID, Role: row.Role, MachineID: pgtx.StrVal(row.MachineID), Site: row.Site,
		BoundRegion:   row.BoundRegion,
		BoundProvider: row.BoundProvider, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
	}), nil
}

// issueOf reads what decides whether a token is issued: its machine, and the token that the same request has made.
func issueOf(ctx context.Context, q *dbsqlc.Queries, t NewToken) (i agent.Issue, err error) {
	i.RequestID = t.RequestID
	if t.MachineID != "" {
		m, err := machinestore.LockMachine(ctx, q, t.MachineID)
		if err != nil {
			return i, err
		}
		i.Machine = machineOf(m)
	}
	if t.RequestID == "" {
		return i, nil
	}
	have, err := q.TokenOfRequest(ctx, dbsqlc.TokenOfRequestParams{MachineID: t.MachineID, Site: t.Site,
		RequestID: t.RequestID})
	if errors.Is(err, pgx.ErrNoRows) {
		return i, nil
	}
	if err != nil {
		return i, fmt.Errorf("look for the request: %w", err)
	}
	row, err := q.LockToken(ctx, have.TokenID)
	if err != nil {
		return i, fmt.Errorf("lock token: %w", err)
	}
	i.Earlier = &agent.Earlier{
		TokenID: row.TokenID, Differing: pgtx.Differing(convert.JSONToMap(have.RequestBody), t.Body),
		Used: row.UsedAt != nil, Revoked: row.RevokedAt != nil, ExpiresAt: row.ExpiresAt,
		SameSecret: bytes.Equal(row.SecretHash, HashSecret(t.SecretOf(row.TokenID))),
	}
	return i, nil
}

func machineOf(m dbsqlc.Machine) *agent.Machine {
	return &agent.Machine{ID: m.MachineID, Deleted: m.DeletedAt != nil, State: fleet.NodeState(m.NodeState)}
}

// EnrollRequest is the request of an agent that is not enrolled yet.
type EnrollRequest struct {
	TokenID, Secret  string
	PublicKeyDigest  []byte
	Region, Provider string
	MACs             []string
	Serial           string
}

// Signed is a certificate that has been made and not yet recorded.
type Signed struct {
	Fingerprint, Serial string
	ChainPEM            []byte
	NotBefore, NotAfter time.Time
	// Generation of the CA that signed it.
	Generation int
}

// Enrolled is an agent's identity and certificate.
type Enrolled struct {
	AgentID, MachineID, Site, Role string
	ChainPEM                       []byte
	// Again is set when the same token and key had been enrolled before.
	Again bool
}

var (
	fpEnrollSigned = failpoint.Register("enroll.after-sign")
	fpEnrollCommit = failpoint.Register("enroll.after-commit")
)

// Enroll uses a token up. It locks the token, signs, and records certificate, agent and use in one transaction. So one
// of any number of callers gets a certificate, and the same key gets the same one again.
func (s *Store) Enroll(
	ctx context.Context, r EnrollRequest, sign func(ctx context.Context, agentID string) (*Signed, error), now time.Time,
) (*Enrolled, error) {
	var out *Enrolled
	var refusal error
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		out, refusal = nil, nil // of an attempt that was rolled back
		row, err := q.LockToken(ctx, r.TokenID)
		known := err == nil
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock token: %w", err)
		}
		n := r.newcomer()
		var t *agent.Token
		var used dbsqlc.AgentCert
		if known {
			if t, used, err = tokenOf(ctx, q, row, n, now); err != nil {
				return err
			}
		}
		v := agent.Enroll(t, n, now)
		switch {
		case v.Refused != nil && v.Audit == "":
			refusal = v.Refused
			return nil
		case v.Refused != nil:
			refusal = v.Refused
			return auditRefusal(ctx, q, row, v.Audit, now)
		case v.Again:
			out = &Enrolled{AgentID: used.AgentID, MachineID: pgtx.StrVal(row.MachineID), Site: row.Site, Role: row.Role,
				ChainPEM: used.ChainPem, Again: true}
			return nil
		}
		out, err = s.enrollNew(ctx, q, row, r, sign, now)
		return err
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return nil, fmt.Errorf("enrol: %w", err)
	}
	return out, fpEnrollCommit.HitCtx(ctx)
}

func (r EnrollRequest) newcomer() agent.Newcomer {
	return agent.Newcomer{SecretHash: HashSecret(r.Secret), KeyDigest: r.PublicKeyDigest, Region: r.Region,
		Provider: r.Provider, MACs: r.MACs, Serial: r.Serial}
}

// tokenOf reads what decides about a newcomer with a token, and the certificate that a used one has given. For one
// without the secret nothing more is read or locked.
func tokenOf(
	ctx context.Context, q *dbsqlc.Queries, row dbsqlc.LockTokenRow, n agent.Newcomer, now time.Time,
) (t *agent.Token, used dbsqlc.AgentCert, err error) {
	t = &agent.Token{
		SecretHash: row.SecretHash, Revoked: row.RevokedAt != nil, Used: row.UsedAt != nil, ExpiresAt: row.ExpiresAt,
		Region: row.BoundRegion, Provider: row.BoundProvider, MAC: row.BoundMac, Serial: row.BoundSerial,
		UsedKey: row.UsedPublicKeyDigest,
	}
	switch {
	case !t.Proven(n, now):
	case t.Used:
		used, err = q.GetCert(ctx, pgtx.StrVal(row.UsedFingerprint))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return t, used, fmt.Errorf("read certificate: %w", err)
		}
		t.CertificateStands = err == nil && used.RevokedAt == nil
	case row.MachineID != nil:
		m, err := q.LockMachine(ctx, *row.MachineID)
		if err != nil {
			return t, used, fmt.Errorf("lock machine: %w", err)
		}
		t.Machine = machineOf(m)
	}
	return t, used, nil
}

func auditRefusal(ctx context.Context, q *dbsqlc.Queries, t dbsqlc.LockTokenRow, why string, now time.Time) error {
	return history.Audit(ctx, q, history.AuditEntry{
		Actor: "enrolment", Verb: "ENROLL_REFUSED", Target: pgtx.StrVal(t.MachineID),
		Data: map[string]string{"token_id": t.TokenID, "why": why},
	}, now)
}

func (s *Store) enrollNew(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.LockTokenRow, r EnrollRequest,
	sign func(context.Context, string) (*Signed, error), now time.Time,
) (*Enrolled, error) {
	out := &Enrolled{AgentID: ids.New(ids.Agent), MachineID: pgtx.StrVal(t.MachineID), Site: t.Site, Role: t.Role}
	if err := forgetFaults(ctx, q, out, now); err != nil {
		return nil, err
	}
	signed, err := sign(ctx, out.AgentID)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	if err := fpEnrollSigned.HitCtx(ctx); err != nil {
		return nil, err
	}
	out.ChainPEM = signed.ChainPEM
	err = q.InsertAgent(ctx, dbsqlc.InsertAgentParams{
		AgentID: out.AgentID, Role: t.Role, MachineID: t.MachineID, Site: t.Site, OperationID: t.OperationID, Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("insert agent: %w", err)
	}
	if t.Site != "" {
		if err := q.InsertSite(ctx, t.Site); err != nil {
			return nil, fmt.Errorf("insert site: %w", err)
		}
	}
	if err := InsertCert(ctx, q, out.AgentID, signed, r.PublicKeyDigest, now); err != nil {
		return nil, err
	}
	n, err := q.UseToken(ctx, dbsqlc.UseTokenParams{
		TokenID: t.TokenID, PublicKeyDigest: r.PublicKeyDigest, Fingerprint: &signed.Fingerprint, AgentID: &out.AgentID,
		Now: &now,
	})
	if err != nil {
		// It is not the token's fault: an agent that gets that answer stops for good.
		return nil, fmt.Errorf("use token: %w", err)
	}
	if n != 1 {
		return nil, pgtx.ErrLostVersion // it was decided on a token that is locked
	}
	return out, history.Audit(ctx, q, history.AuditEntry{
		Actor: out.AgentID, Verb: "ENROLL", Target: out.MachineID,
		Data: map[string]string{"token_id": t.TokenID, "fingerprint": signed.Fingerprint},
	}, now)
}

// forgetFaults clears the conditions of a host that an earlier agent has found: the new one has to find them anew. The
// node stays where it is: its agent's first session moves it, so that no node is enrolling without an agent.
func forgetFaults(ctx context.Context, q *dbsqlc.Queries, e *Enrolled, now time.Time) error {
	if e.MachineID == "" || e.Role != "host" {
		return nil
	}
	for _, c := range []fleet.ConditionType{fleet.Degraded, fleet.RAIDDegraded} {
		change := operation.ConditionChange{Type: c, Reason: "NewAgent"}
		if err := machinestore.SetCondition(ctx, q, e.MachineID, change, now); err != nil {
			return err
		}
	}
	return nil
}

func InsertCert(
	ctx context.Context, q *dbsqlc.Queries, agentID string, c *Signed, keyDigest []byte, now time.Time,
) error {
	_, err := q.InsertCert(ctx, dbsqlc.InsertCertParams{
		Fingerprint: c.Fingerprint, AgentID: agentID, SerialNumber: c.Serial, PublicKeyDigest: keyDigest,
		ChainPem:  c.ChainPEM,
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, IssuedAt: now, CaGeneration: int32(max(c.Generation, 1)),
	})
	if err != nil {
		return fmt.Errorf("record certificate: %w", err)
	}
	return nil
}

// Rotate records a further certificate of an enrolled agent. The same key again returns the certificate that it has.
func (s *Store) Rotate(
	ctx context.Context, agentID string, keyDigest []byte, sign func(ctx context.Context, agentID string) (*Signed, error),
	verb string, now time.Time,
) (*Enrolled, error) {
	out := &Enrolled{AgentID: agentID}
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		a, err := q.LockAgent(ctx, agentID)
		if err != nil {
			return fmt.Errorf("lock agent: %w", err)
		}
		m, err := machineOfAgent(ctx, q, a)
		if err != nil {
			return err
		}
		if err := agent.MayRenew(a.Role, m); err != nil {
			return err
		}
		certs, err := q.CertsOf(ctx, []string{agentID})
		if err != nil {
			return fmt.Errorf("read certificates: %w", err)
		}
		for _, c := range certs {
			if bytes.Equal(c.PublicKeyDigest, keyDigest) && c.RevokedAt == nil && now.Before(c.NotAfter) {
				out.ChainPEM, out.Again = c.ChainPem, true
				return nil
			}
		}
		signed, err := sign(ctx, agentID)
		if err != nil {
			return fmt.Errorf("sign certificate: %w", err)
		}
		out.ChainPEM = signed.ChainPEM
		if err := InsertCert(ctx, q, agentID, signed, keyDigest, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: verb, Target: pgtx.StrVal(a.MachineID),
			Data: map[string]string{"fingerprint": signed.Fingerprint},
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("rotate certificate: %w", err)
	}
	return out, nil
}

// machineOfAgent reads the machine of an agent; nil for one of a site.
func machineOfAgent(ctx context.Context, q *dbsqlc.Queries, a dbsqlc.Agent) (*agent.Machine, error) {
	if a.MachineID == nil {
		return nil, nil
	}
	m, err := q.GetMachine(ctx, *a.MachineID)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	return machineOf(m), nil
}

// Cert is a recorded certificate.
type Cert struct {
	Fingerprint, AgentID string
	PublicKeyDigest      []byte
	NotAfter             time.Time
	Revoked, Replaced    bool
}

// GetCert reads a certificate by its fingerprint; nil if it is not recorded.
func (s *Store) GetCert(ctx context.Context, fingerprint string) (*Cert, error) {
	return s.certs.Do(ctx, fingerprint)
}

// Outdated reports whether a newer certificate of the agent than this one has opened a session. One that was only
// signed counts for nothing: its answer may have been lost, and the agent may know this one alone.
func (s *Store) Outdated(ctx context.Context, agentID, fingerprint string) (bool, error) {
	all, err := s.db.Q.CertsOf(ctx, []string{agentID})
	if err != nil {
		return false, fmt.Errorf("read certificates: %w", err)
	}
	for _, c := range all { // newest first
		if c.Fingerprint == fingerprint {
			return false, nil
		}
		if c.FirstUsedAt != nil {
			return true, nil
		}
	}
	return true, nil
}

// RevokedAmong returns those of these certificates that have been revoked.
func (s *Store) RevokedAmong(ctx context.Context, fingerprints []string) ([]string, error) {
	out, err := s.db.Q.RevokedSince(ctx, fingerprints)
	if err != nil {
		return nil, fmt.Errorf("read revocations: %w", err)
	}
	return out, nil
}

// RevokeAgent revokes one certificate of an agent, or all, and returns what it revoked.
func (s *Store) RevokeAgent(
	ctx context.Context, agentID, fingerprint, actor, why string, now time.Time,
) ([]string, error) {
	var out []string
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		a, err := q.LockAgent(ctx, agentID)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("AGENT_NOT_FOUND", "there is no agent %q", agentID).WithField("agent_id", "unknown")
		}
		if err != nil {
			return fmt.Errorf("lock agent: %w", err)
		}
		out, err = q.RevokeCerts(ctx, dbsqlc.RevokeCertsParams{AgentID: agentID, Fingerprint: fingerprint, Now: &now})
		if err != nil {
			return fmt.Errorf("revoke certificates: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REVOKE_AGENT",
			Target: pgtx.OrText(pgtx.StrVal(a.MachineID), agentID), Comment: why,
			Data: map[string]string{"agent_id": agentID}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("revoke agent: %w", err)
	}
	return out, nil
}
