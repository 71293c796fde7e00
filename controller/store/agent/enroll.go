package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
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
		if t.MachineID != "" {
			if err := readyForToken(ctx, q, t, now); err != nil {
				return err
			}
		}
		if id, err = issuedBefore(ctx, q, t, now); err != nil || id != "" {
			return err
		}
		id = t.TokenID
		err := q.InsertToken(ctx, dbsqlc.InsertTokenParams{
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

// issuedBefore returns the token that the same request has made, empty where there is none. One that cannot be used any
// more is refused.
func issuedBefore(ctx context.Context, q *dbsqlc.Queries, t NewToken, now time.Time) (string, error) {
	if t.RequestID == "" {
		return "", nil
	}
	have, err := q.TokenOfRequest(ctx, dbsqlc.TokenOfRequestParams{MachineID: t.MachineID, Site: t.Site,
		RequestID: t.RequestID})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for the request: %w", err)
	}
	if diff := pgtx.Differing(convert.JSONToMap(have.RequestBody), t.Body); len(diff) > 0 {
		return "", failure.AlreadyExists("REQUEST_ID_REUSED", "request_id %q was used with another %s", t.RequestID,
			strings.Join(diff, ", ")).
			WithField(diff[0], "differs from the first request")
	}
	row, err := q.LockToken(ctx, have.TokenID)
	if err != nil {
		return "", fmt.Errorf("lock token: %w", err)
	}
	if row.UsedAt != nil || row.RevokedAt != nil || !now.Before(row.ExpiresAt) ||
		!bytes.Equal(row.SecretHash, HashSecret(t.SecretOf(row.TokenID))) {
		return "",
			failure.Precondition("TOKEN_SPENT",
				"token %s of this request can be used no more; ask for another under a new request_id",
				row.TokenID).WithMeta("token_id", row.TokenID)
	}
	return row.TokenID, nil
}

func readyForToken(ctx context.Context, q *dbsqlc.Queries, t NewToken, now time.Time) error {
	m, err := q.LockMachine(ctx, t.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return convert.MachineNotFound(t.MachineID)
	}
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	if m.DeletedAt != nil {
		return failure.Precondition("MACHINE_DELETED", "machine %s has been deleted; register it as a new record",
			t.MachineID)
	}
	if node.Parse(m.NodeState) != node.Discovered {
		return nil
	}
	return nodestate.MoveNode(ctx, q, t.MachineID, node.BootstrapIssued, node.Admin, t.Actor, "", nil, now)
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

// errToken is the one answer to a token that is unknown, wrong, used, expired or revoked.
func errToken() error {
	return failure.Unauthenticated("BOOTSTRAP_TOKEN_INVALID", "the bootstrap token is not valid; ask for a new one")
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
		t, err := q.LockToken(ctx, r.TokenID)
		if errors.Is(err, pgx.ErrNoRows) {
			refusal = errToken()
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock token: %w", err)
		}
		if subtle.ConstantTimeCompare(t.SecretHash, HashSecret(r.Secret)) != 1 || t.RevokedAt != nil ||
			!now.Before(t.ExpiresAt) {
			refusal = errToken()
			return auditRefusal(ctx, q, t, "wrong, expired or revoked", now)
		}
		if t.UsedAt != nil {
			out, err = again(ctx, q, t, r)
			if err != nil && failure.From(err).Kind != failure.KindUnauthenticated {
				return err
			}
			if err != nil {
				refusal = err
				return auditRefusal(ctx, q, t, "used with another key, or its certificate is revoked", now)
			}
			return nil
		}
		if refusal = bindings(t, r); refusal != nil {
			return auditRefusal(ctx, q, t, "bound to another machine", now)
		}
		out, err = s.enrollNew(ctx, q, t, r, sign, now)
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

func auditRefusal(ctx context.Context, q *dbsqlc.Queries, t dbsqlc.LockTokenRow, why string, now time.Time) error {
	return history.Audit(ctx, q, history.AuditEntry{
		Actor: "enrolment", Verb: "ENROLL_REFUSED", Target: pgtx.StrVal(t.MachineID),
		Data: map[string]string{"token_id": t.TokenID, "why": why},
	}, now)
}

// again returns what the same token and key got before.
func again(ctx context.Context, q *dbsqlc.Queries, t dbsqlc.LockTokenRow, r EnrollRequest) (*Enrolled, error) {
	if !bytes.Equal(t.UsedPublicKeyDigest, r.PublicKeyDigest) {
		return nil, errToken()
	}
	cert, err := q.GetCert(ctx, pgtx.StrVal(t.UsedFingerprint))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if err != nil || cert.RevokedAt != nil {
		return nil, errToken()
	}
	return &Enrolled{
		AgentID: cert.AgentID, MachineID: pgtx.StrVal(t.MachineID), Site: t.Site, Role: t.Role, ChainPEM: cert.ChainPem,
		Again: true,
	}, nil
}

func (s *Store) enrollNew(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.LockTokenRow, r EnrollRequest,
	sign func(context.Context, string) (*Signed, error), now time.Time,
) (*Enrolled, error) {
	out := &Enrolled{AgentID: ids.New(ids.Agent), MachineID: pgtx.StrVal(t.MachineID), Site: t.Site, Role: t.Role}
	if out.MachineID != "" {
		if err := enrollMachine(ctx, q, out, now); err != nil {
			return nil, err
		}
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
		return nil, errToken()
	}
	return out, history.Audit(ctx, q, history.AuditEntry{
		Actor: out.AgentID, Verb: "ENROLL", Target: out.MachineID,
		Data: map[string]string{"token_id": t.TokenID, "fingerprint": signed.Fingerprint},
	}, now)
}

// enrollMachine refuses the agent of a deleted or retired machine like a bad token. The node stays where it is: its
// agent's first session moves it, so that no node is enrolling without an agent. The new agent has to find anew what an
// earlier one has found on the host.
func enrollMachine(ctx context.Context, q *dbsqlc.Queries, e *Enrolled, now time.Time) error {
	m, err := q.LockMachine(ctx, e.MachineID)
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	if m.DeletedAt != nil || m.NodeState == string(fleet.Retired) {
		return errToken()
	}
	if e.Role != "host" {
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
		if err := refuseGone(ctx, q, a); err != nil {
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

// roleInstaller is the role of agents that were certified for one operation.
const roleInstaller = "installer"

// refuseGone refuses a further certificate to an installer, whose only one ends with its operation, and to an agent
// whose machine may not come back.
func refuseGone(ctx context.Context, q *dbsqlc.Queries, a dbsqlc.Agent) error {
	if a.Role == roleInstaller {
		return failure.Precondition("REENROLL_REFUSED",
			"an installer is certified for one operation, and its certificate ends with that; it gets no other")
	}
	if a.MachineID == nil {
		return nil
	}
	m, err := q.GetMachine(ctx, *a.MachineID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	if m.DeletedAt != nil || m.NodeState == string(fleet.Retired) || m.NodeState == string(fleet.Quarantined) {
		return failure.Precondition("REENROLL_REFUSED", "machine %s is %s; its agent gets no certificate", m.MachineID,
			m.NodeState)
	}
	return nil
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
