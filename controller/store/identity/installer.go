package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/ids"
)

// VouchRequest is a site agent's word for a netbooted system.
type VouchRequest struct {
	SiteAgentID, MachineID, BootToken, MAC string
	PublicKeyDigest                        []byte
	// Hardware is the fingerprint of the hardware that the system runs on; see hwid.Facts.
	Hardware string
	// TPM is the endorsement key that the system shows, nil for none. Proven reports that the system has activated a
	// credential that was made for it.
	TPM    *identity.Key
	Proven bool
	// Media reports that the system has proven to be started from the image that the machine's BMC attached.
	Media bool
}

// Vouched is the identity of a netbooted system.
type Vouched struct {
	AgentID, MachineID, OperationID string
	ChainPEM                        []byte
	// Contested is set when two keys ask for one assignment while the first one's owner lives. None is certified, and the
	// operation must be stopped.
	Contested bool
	// Waits is set when another key holds the assignment, whose owner has some time left to show that it lives.
	Waits bool
	// Challenge is set when the system must prove first that it holds the key that it shows. Nothing is stored.
	Challenge bool
	// Refused is why the system can't be this machine. It is not certified. Report is set when no such system was reported
	// to the operation's watchers for a while.
	Refused *identity.Refusal
	Report  bool
	// Replaced are the certificates of an installer that is gone; their sessions must end.
	Replaced []string
	// Ended reports that the operation is over: the system must be the rescue system that it has left.
	Ended bool
	// life is what the operation may take at most, and the longest life of a certificate.
	life time.Duration
}

// Sign certifies the key of an installer under an agent's id, for life at most.
type Sign func(ctx context.Context, agentID string, life time.Duration) (*agentstore.Signed, error)

// contestWindow is how long the owner of an earlier key has to show a sign of life before another key takes its place.
// A machine that was restarted comes with a new key, and its earlier self is silent.
const contestWindow = 15 * time.Second

// Vouch certifies the key of a netbooted system for its assignment. The same key gets the same certificate again.
func (s *Store) Vouch(
	ctx context.Context, r VouchRequest, sign Sign, now time.Time,
) (*Vouched, error) {
	var out *Vouched
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		out, err = vouch(ctx, q, r, sign, now)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vouch for an installer: %w", err)
	}
	return out, nil
}

func vouch(ctx context.Context, q *dbsqlc.Queries, r VouchRequest, sign Sign, now time.Time) (*Vouched, error) {
	m, a, err := lockBoot(ctx, q, r)
	if err != nil {
		return nil, err
	}
	out := &Vouched{MachineID: m.MachineID, OperationID: pgtx.StrVal(a.OperationID)}
	if err := out.mayBoot(ctx, q, m, a, r); err != nil {
		return nil, err
	}
	verdict, err := judgeIdentity(ctx, q, m, a, r)
	if err != nil {
		return nil, err
	}
	if verdict.Refused != nil {
		return out, refuseIdentity(ctx, q, out, m, a, r, verdict, now)
	}
	if verdict.Level == identity.LevelTPM && !r.Proven {
		out.Challenge = true
		return out, nil
	}
	switch {
	case len(a.InstallerKeyDigest) == 0:
	case bytes.Equal(a.InstallerKeyDigest, r.PublicKeyDigest):
		return certAgain(ctx, q, out, a)
	default:
		verdict, err := judgeContender(ctx, q, a, r.PublicKeyDigest, now)
		if err != nil {
			return nil, err
		}
		switch verdict {
		case contenderContests:
			out.Contested = true
			return out, history.Audit(ctx, q, history.AuditEntry{
				Actor: r.SiteAgentID, Verb: "ENROLMENT_CONTESTED", Target: m.MachineID, Operation: out.OperationID,
				Data: map[string]string{"mac": r.MAC},
			}, now)
		case contenderWaits:
			out.Waits = true
			return out, nil
		}
		out.Replaced, err = q.RevokeCerts(ctx, dbsqlc.RevokeCertsParams{AgentID: pgtx.StrVal(a.InstallerAgentID), Now: &now})
		if err != nil {
			return nil, fmt.Errorf("revoke the certificates of the installer before: %w", err)
		}
	}
	return out, certifyInstaller(ctx, q, out, m, r, verdict, sign, now)
}

// mayBoot reads how long the operation of an assignment may last, and refuses to certify for one that is over.
func (v *Vouched) mayBoot(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a dbsqlc.BootAssignment, r VouchRequest,
) error {
	site, err := q.GetAgent(ctx, r.SiteAgentID)
	if err != nil {
		return fmt.Errorf("read site agent: %w", err)
	}
	f := identity.Assignment{Vouched: site.Role == "site" && site.Site == m.Site, Mode: a.Mode,
		OperationID: v.OperationID, TokenFits: a.Token == r.BootToken, Busy: m.CurrentOperationID != nil}
	if v.OperationID != "" {
		op, err := q.OperationLimit(ctx, v.OperationID)
		if err != nil {
			return fmt.Errorf("read the assignment's operation: %w", err)
		}
		v.Ended = operation.IsTerminal(operation.Phase(op.Phase))
		v.life = time.Duration(op.LimitMs) * time.Millisecond
	}
	f.Ended = v.Ended
	return f.Refuse()
}

// lockBoot locks a machine and its assignment, which is empty where there is none.
func lockBoot(ctx context.Context, q *dbsqlc.Queries, r VouchRequest) (dbsqlc.Machine, dbsqlc.BootAssignment, error) {
	m, err := q.LockMachine(ctx, r.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, dbsqlc.BootAssignment{}, convert.MachineNotFound(r.MachineID)
	}
	if err != nil {
		return m, dbsqlc.BootAssignment{}, fmt.Errorf("lock machine: %w", err)
	}
	a, err := q.LockAssignment(ctx, r.MachineID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return m, a, fmt.Errorf("lock assignment: %w", err)
	}
	return m, a, nil
}

type contenderVerdict int

const (
	contenderWaits contenderVerdict = iota
	contenderContests
	contenderTakesOver
)

// judgeContender returns the verdict on a second key under one token. It waits for a while, and if the owner of the
// first one shows a sign of life meanwhile, the two are two systems.
func judgeContender(
	ctx context.Context, q *dbsqlc.Queries, a dbsqlc.BootAssignment, key []byte, now time.Time,
) (contenderVerdict, error) {
	if !bytes.Equal(a.ContenderKeyDigest, key) || a.ContenderAt == nil {
		err := q.SetContender(ctx, dbsqlc.SetContenderParams{MachineID: a.MachineID, KeyDigest: key, Now: &now})
		if err != nil {
			return contenderWaits, fmt.Errorf("note a second key: %w", err)
		}
		return contenderWaits, nil
	}
	seen, err := q.LastSignOfLife(ctx, pgtx.StrVal(a.InstallerAgentID))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return contenderWaits, fmt.Errorf("read session: %w", err)
	}
	return contend(*a.ContenderAt, seen, now), nil
}

// contend decides on a contender that asked first at since, while the first key's owner was seen last at seen. Signs of
// life are stored up to a second late.
func contend(since, seen, now time.Time) contenderVerdict {
	switch {
	case seen.After(since.Add(2 * time.Second)):
		return contenderContests
	case now.Sub(since) >= contestWindow:
		return contenderTakesOver
	}
	return contenderWaits
}

func certAgain(ctx context.Context, q *dbsqlc.Queries, out *Vouched, a dbsqlc.BootAssignment) (*Vouched, error) {
	certs, err := q.CertsOf(ctx, []string{pgtx.StrVal(a.InstallerAgentID)})
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if err := identity.MayRepeat(len(certs) > 0 && certs[0].RevokedAt == nil); err != nil {
		return nil, err
	}
	out.AgentID, out.ChainPEM = pgtx.StrVal(a.InstallerAgentID), certs[0].ChainPem
	return out, nil
}

func certifyInstaller(ctx context.Context, q *dbsqlc.Queries, out *Vouched, m dbsqlc.Machine, r VouchRequest,
	v identity.Verdict, sign Sign, now time.Time) error {
	out.AgentID = ids.New(ids.Agent)
	signed, err := sign(ctx, out.AgentID, out.life)
	if err != nil {
		return fmt.Errorf("sign certificate: %w", err)
	}
	out.ChainPEM = signed.ChainPEM
	err = q.InsertAgent(ctx, dbsqlc.InsertAgentParams{
		AgentID: out.AgentID, Role: "installer", MachineID: &m.MachineID, Site: m.Site,
		OperationID:   pgtx.StrPtr(out.OperationID),
		IdentityLevel: string(v.Level), IdentityTrust: string(v.Trust), Now: now,
	})
	if err != nil {
		return fmt.Errorf("insert agent: %w", err)
	}
	if err := recordIdentity(ctx, q, m, r.TPM, v, now); err != nil {
		return err
	}
	if err := agentstore.InsertCert(ctx, q, out.AgentID, signed, r.PublicKeyDigest, now); err != nil {
		return err
	}
	err = q.SetInstallerKey(ctx, dbsqlc.SetInstallerKeyParams{MachineID: m.MachineID, KeyDigest: r.PublicKeyDigest,
		AgentID: &out.AgentID})
	if err != nil {
		return fmt.Errorf("note the installer's key: %w", err)
	}
	return history.Audit(ctx, q, history.AuditEntry{
		Actor: r.SiteAgentID, Verb: "VOUCH_INSTALLER", Target: m.MachineID, Operation: out.OperationID,
		Data: map[string]string{
			"agent_id": out.AgentID, "fingerprint": signed.Fingerprint, "mac": r.MAC, "identity_level": string(v.Level),
			"identity_trust": string(v.Trust),
		},
	}, now)
}

// Identity is what the next system of a machine needs besides its token.
type Identity struct {
	MachineID, OperationID, ImageRef, ImageDigest string
	// SeedID names the seed of the system's first boot, "" for none; SealedSeed is nil where it is gone.
	SeedID     string
	SealedSeed []byte
	// Agentless: the system has no agent. The secret is what it phones home with, and there is no token.
	Agentless bool
}

// identityLife is how long the next system has to enrol.
const identityLife = time.Hour

// IssueIdentity stores a token for the system that a granted repave writes, and revokes an earlier one of the same
// command. For a system without an agent it stores the digest of the secret in place of a token.
func (s *Store) IssueIdentity(
	ctx context.Context, agentID, commandID, tokenID, secret string, now time.Time,
) (*Identity, error) {
	var out *Identity
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, err := q.GetCommand(ctx, commandID)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read command: %w", err)
		}
		command := credential.Command{ID: commandID, ExecutorID: c.ExecutorID, State: operation.CommandState(c.State),
			Needs: err == nil && writesSystem(c)}
		if err := command.GrantedTo(agentID); err != nil {
			return err
		}
		if err := q.RevokeTokensOfCommand(ctx, dbsqlc.RevokeTokensOfCommandParams{CommandID: &commandID,
			Now: &now}); err != nil {
			return fmt.Errorf("revoke earlier tokens: %w", err)
		}
		if out, err = identityOf(c.Spec); err != nil {
			return err
		}
		if err := keepSecret(ctx, q, c, out.Agentless, tokenID, secret, now); err != nil {
			return err
		}
		out.MachineID, out.OperationID = c.TargetID, c.OperationID
		if kind.Of(kind.Kind(c.Kind)).WritesSystem {
			seed, err := q.SystemSeedOf(ctx, c.OperationID)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("read the system's seed: %w", err)
			}
			out.SeedID, out.SealedSeed = seed.SeedID, seed.Sealed
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "ISSUE_IDENTITY", Target: c.TargetID, Operation: c.OperationID,
			Data: map[string]string{"token_id": tokenID},
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("issue identity: %w", err)
	}
	return out, nil
}

// keepSecret stores what the new system proves itself with, by its digest.
func keepSecret(
	ctx context.Context, q *dbsqlc.Queries, c dbsqlc.GetCommandRow, agentless bool, tokenID, secret string, now time.Time,
) error {
	if !agentless {
		err := q.InsertToken(ctx, dbsqlc.InsertTokenParams{
			TokenID: tokenID, SecretHash: agentstore.HashSecret(secret), Role: "host", MachineID: &c.TargetID, CreatedAt: now,
			ExpiresAt: now.Add(identityLife), OperationID: &c.OperationID, CommandID: &c.CommandID,
		})
		return pgtx.Wrap(err, "insert token")
	}
	err := q.PutPhoneHome(ctx, dbsqlc.PutPhoneHomeParams{
		OperationID: c.OperationID, MachineID: c.TargetID, CommandID: c.CommandID,
		SecretSha256: agentstore.HashSecret(secret), Now: now,
	})
	if err != nil {
		return fmt.Errorf("store the digest of a secret: %w", err)
	}
	m, err := q.GetMachine(ctx, c.TargetID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	return pgtx.Wrap(q.TouchSite(ctx, m.Site), "number the site's document")
}

// writesSystem reports whether a new system comes of the command, which will need an identity.
func writesSystem(c dbsqlc.GetCommandRow) bool {
	of := kind.Of(kind.Kind(c.Kind))
	if of.WritesSystem {
		return true
	}
	spec := &fleetv1.CommandSpec{}
	if of.Route != kind.ThroughProvider || proto.Unmarshal(c.Spec, spec) != nil {
		return false
	}
	action := spec.GetProviderAction().GetAction()
	return action == "deploy" || action == "recover_deploy"
}

func identityOf(spec []byte) (*Identity, error) {
	c := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(spec, c); err != nil {
		return nil, fmt.Errorf("parse stored command: %w", err)
	}
	if p := c.GetProviderAction(); p != nil {
		return &Identity{ImageRef: p.GetParams()["image"]}, nil
	}
	r := c.GetRepave()
	return &Identity{
		ImageRef:    r.GetImageRef(),
		ImageDigest: "sha256:" + r.GetSha256Raw(),
		Agentless:   r.GetAgentless(),
	}, nil
}
