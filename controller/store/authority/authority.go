// Package authority stores the generations of the CA, and finds who holds certificates of old ones.
package authority

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/agent"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	fpRotateStored   = failpoint.Register("authority.after-rotate")
	fpWithdrawStored = failpoint.Register("authority.after-withdraw")
)

// Store holds the generations. It is safe for concurrent use.
type Store struct{ db *pgtx.DB }

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// Generation is one generation of the CA.
type Generation struct {
	Number                    int
	Root, Intermediate, Cross []byte // PEM
	// Sealed are its keys.
	Sealed     []byte
	Created    time.Time
	CreatedBy  string
	Withdrawn  time.Time
	WithdrawBy string
}

// Authorities returns all generations, oldest first; none where the CA was never rotated.
func (s *Store) Authorities(ctx context.Context) ([]Generation, error) {
	return read(ctx, s.db.Q)
}

func read(ctx context.Context, q *dbsqlc.Queries) ([]Generation, error) {
	rows, err := q.CertificateAuthorities(ctx)
	if err != nil {
		return nil, fmt.Errorf("read generations of the CA: %w", err)
	}
	out := make([]Generation, 0, len(rows))
	for _, r := range rows {
		out = append(out, Generation{
			Number: int(r.Generation), Root: r.RootPem, Intermediate: r.IntermediatePem, Cross: r.CrossPem, Sealed: r.SealedKeys,
			Created: r.CreatedAt, CreatedBy: r.CreatedBy, Withdrawn: pgtx.TimeVal(r.WithdrawnAt), WithdrawBy: r.WithdrawnBy,
		})
	}
	return out, nil
}

// RotateAuthority adds the next generation, and those before it that are not recorded yet. While two are in force it
// changes nothing.
func (s *Store) RotateAuthority(
	ctx context.Context, before []Generation, next Generation, actor, comment string, now time.Time,
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockCertificateAuthorities(ctx); err != nil {
			return fmt.Errorf("lock generations of the CA: %w", err)
		}
		known, err := read(ctx, q)
		if err != nil {
			return err
		}
		if inForce(known) > 1 || slices.ContainsFunc(known, func(g Generation) bool { return g.Number >= next.Number }) {
			return nil
		}
		for _, g := range append(slices.Clone(before), next) {
			if err := insert(ctx, q, g, actor, now); err != nil {
				return err
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "ROTATE_AUTHORITY",
			Target: "authority/" + strconv.Itoa(next.Number), Comment: comment}, now)
	})
	if err != nil {
		return fmt.Errorf("rotate the CA: %w", err)
	}
	return fpRotateStored.HitCtx(ctx)
}

func inForce(all []Generation) (n int) {
	for _, g := range all {
		if g.Withdrawn.IsZero() {
			n++
		}
	}
	return n
}

func insert(ctx context.Context, q *dbsqlc.Queries, g Generation, actor string, now time.Time) error {
	if g.Created.IsZero() {
		g.Created = now
	}
	err := q.InsertCertificateAuthority(ctx, dbsqlc.InsertCertificateAuthorityParams{
		Generation: int32(g.Number), RootPem: orEmpty(g.Root), IntermediatePem: orEmpty(g.Intermediate),
		CrossPem: orEmpty(g.Cross), SealedKeys: orEmpty(g.Sealed), CreatedAt: g.Created, CreatedBy: actor,
	})
	if err != nil {
		return fmt.Errorf("store generation %d of the CA: %w", g.Number, err)
	}
	return nil
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// RestoreAuthorities records generations that a controller has on its disk and the database has lost, as after a
// restore.
func (s *Store) RestoreAuthorities(ctx context.Context, lost []Generation, actor string, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockCertificateAuthorities(ctx); err != nil {
			return fmt.Errorf("lock generations of the CA: %w", err)
		}
		for _, g := range lost {
			if err := insert(ctx, q, g, actor, now); err != nil {
				return err
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "RESTORE_AUTHORITY",
			Target: "authority/" + strconv.Itoa(lost[len(lost)-1].Number)}, now)
	})
	if err != nil {
		return fmt.Errorf("restore generations of the CA: %w", err)
	}
	return nil
}

// maxHolders bounds those that are named.
const maxHolders = 1000

// Holders are the agents whose certificate in use is of a generation before the newest, the first 1,000, and how many
// there are. expiredBefore is how long ago a certificate may have ended with which an agent comes back.
func (s *Store) Holders(
	ctx context.Context, newest int, expiredBefore, now time.Time,
) ([]*baremetalv1.Authority_Holder, int32, error) {
	return holders(ctx, s.db.Q, newest, expiredBefore, now, maxHolders)
}

func holders(
	ctx context.Context, q *dbsqlc.Queries, newest int, expiredBefore, now time.Time, limit int32,
) (out []*baremetalv1.Authority_Holder, all int32, err error) {
	rows, err := q.HoldersOfOldCertificates(ctx, dbsqlc.HoldersOfOldCertificatesParams{
		Newest: int32(newest), Now: now, ExpiredBefore: expiredBefore, PageSize: limit,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("find certificates of old generations of the CA: %w", err)
	}
	for _, r := range rows {
		out = append(out, &baremetalv1.Authority_Holder{
			AgentId: r.AgentID, MachineId: r.MachineID, Site: r.Site, Role: r.Role, Generation: r.CaGeneration,
			Connected: r.Connected, CertificateEndsAt: convert.Timestamp(r.NotAfter),
		})
		all = int32(r.AllOfThem)
	}
	return out, all, nil
}

// Withdrawal is the generation that ends, with the agents or machines that may lose their sessions.
type Withdrawal struct {
	Generation     int
	LeaveBehind    []string
	Actor, Comment string
	// ExpiredBefore is as for Holders.
	ExpiredBefore time.Time
}

// maxFleet bounds the agents that a withdrawal looks at.
const maxFleet = 1_000_000

// WithdrawAuthority ends a generation, unless an agent that is not named holds a certificate of it or of an earlier
// one.
func (s *Store) WithdrawAuthority(ctx context.Context, w Withdrawal, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockCertificateAuthorities(ctx); err != nil {
			return fmt.Errorf("lock generations of the CA: %w", err)
		}
		all, err := read(ctx, q)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(g Generation) bool { return g.Number == w.Generation })
		if i < 0 || i == len(all)-1 {
			return failure.NotFound("AUTHORITY_NOT_FOUND",
				"the CA has no generation %d that another has taken the place of; ingot ca status shows them", w.Generation).
				WithField("generation", "unknown, or the newest")
		}
		if !all[i].Withdrawn.IsZero() {
			return nil
		}
		held, _, err := holders(ctx, q, w.Generation+1, w.ExpiredBefore, now, maxFleet)
		if err != nil {
			return err
		}
		if err := agent.MayWithdraw(w.Generation, holdersOf(held), w.LeaveBehind); err != nil {
			return err
		}
		err = q.WithdrawCertificateAuthority(ctx, dbsqlc.WithdrawCertificateAuthorityParams{Generation: int32(w.Generation),
			Now: &now, Actor: w.Actor})
		if err != nil {
			return fmt.Errorf("withdraw generation of the CA: %w", err)
		}
		data := map[string]string{}
		if len(held) > 0 {
			data["left_behind"] = strings.Join(names(held), " ")
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: w.Actor, Verb: "WITHDRAW_AUTHORITY", Comment: w.Comment,
			Target: "authority/" + strconv.Itoa(w.Generation), Data: data}, now)
	})
	if err != nil {
		return fmt.Errorf("withdraw generation %d of the CA: %w", w.Generation, err)
	}
	return fpWithdrawStored.HitCtx(ctx)
}

func names(held []*baremetalv1.Authority_Holder) (out []string) {
	for _, h := range holdersOf(held) {
		out = append(out, h.Name())
	}
	return out
}

func holdersOf(held []*baremetalv1.Authority_Holder) (out []agent.Holder) {
	for _, h := range held {
		out = append(out, agent.Holder{AgentID: h.GetAgentId(), MachineID: h.GetMachineId()})
	}
	return out
}
