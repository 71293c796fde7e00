package credential

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	accessstore "github.com/ingot-metal/ingot/controller/store/access"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// NewAPIToken is a bearer token to be made.
type NewAPIToken struct {
	ID, Name, Actor string
	// Maker is the caller. It is zero where the controller itself makes the token.
	Maker     access.Caller
	Scope     access.Scope
	Hash      [32]byte
	ExpiresAt time.Time
	// Selection is the filter of the machines that it is good for. Empty stands for all.
	Selection string
}

// row returns the stored row of a token. The hash of a token with a selection is in narrow_hash: a controller of an
// older version, which would ignore the selection, does not find it.
func (t NewAPIToken) row(now time.Time) dbsqlc.InsertAPITokenParams {
	p := dbsqlc.InsertAPITokenParams{
		TokenID: t.ID, Name: t.Name, Scope: t.Scope.String(), Hash: t.Hash[:], Selection: t.Selection,
		ParentID: t.Maker.TokenID, CreatedAt: now, CreatedBy: t.Actor, ExpiresAt: t.ExpiresAt,
		CreatedByIdentity: t.Maker.Identity(),
	}
	if t.Selection != "" {
		none := sha256.Sum256([]byte("narrow " + t.ID))
		p.NarrowHash, p.Hash = p.Hash, none[:]
	}
	return p
}

// CreateAPIToken stores a token, hashed. A name is that of one token in force.
func (s *Store) CreateAPIToken(ctx context.Context, t NewAPIToken, now time.Time) (*baremetalv1.APIToken, error) {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.TouchAPITokens(ctx); err != nil {
			return fmt.Errorf("lock tokens: %w", err)
		}
		n, err := q.CountAPITokensInForce(ctx, now)
		if err != nil {
			return fmt.Errorf("count tokens: %w", err)
		}
		revoked, err := makerRevoked(ctx, q, t.Maker)
		if err != nil {
			return err
		}
		if err := access.AdmitToken(n, revoked); err != nil {
			return err
		}
		if err := q.EndExpiredAPIToken(ctx, dbsqlc.EndExpiredAPITokenParams{Name: t.Name, Now: now}); err != nil {
			return fmt.Errorf("end expired token: %w", err)
		}
		if t.Maker.Person != nil { // whose roles count for the token
			if _, err := accessstore.PutPerson(ctx, q, *t.Maker.Person); err != nil {
				return err
			}
		}
		if err := q.InsertAPIToken(ctx, t.row(now)); err != nil {
			return fmt.Errorf("store token: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: t.Actor, Verb: "CREATE_API_TOKEN", Target: t.ID,
			Data: map[string]string{
				"name": t.Name, "scope": t.Scope.String(), "expires_at": t.ExpiresAt.UTC().Format(time.RFC3339),
				"selection": t.Selection,
			}}, now)
	})
	if pgtx.UniqueViolation(err, "api_tokens_name") {
		return nil, failure.AlreadyExists("API_TOKEN_EXISTS",
			"there is a token %q already; revoke it, or choose another name", t.Name).
			WithField("name", "taken by another token")
	}
	if err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	return &baremetalv1.APIToken{
		TokenId: t.ID, Name: t.Name, Scope: t.Scope.String(), Source: sourceDatabase, CreatedAt: convert.Timestamp(now),
		CreatedBy: t.Actor,
		ExpiresAt: convert.Timestamp(t.ExpiresAt), Selection: t.Selection, ParentId: t.Maker.TokenID,
	}, nil
}

// makerRevoked reports whether the maker is a token that has been revoked meanwhile.
func makerRevoked(ctx context.Context, q *dbsqlc.Queries, maker access.Caller) (bool, error) {
	if maker.Person != nil || maker.TokenID == "" {
		return false, nil
	}
	row, err := q.LockAPIToken(ctx, maker.TokenID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("lock token: %w", err)
	}
	return err != nil || row.RevokedAt != nil, nil
}

const sourceDatabase = "database"

func apiToken(r dbsqlc.ApiToken) *baremetalv1.APIToken {
	return &baremetalv1.APIToken{
		TokenId: r.TokenID, Name: r.Name, Scope: r.Scope, Source: sourceDatabase, CreatedAt: convert.Timestamp(r.CreatedAt),
		CreatedBy: r.CreatedBy,
		ExpiresAt: convert.Timestamp(r.ExpiresAt), LastUsedAt: convert.TimestampPtr(r.LastUsedAt),
		RevokedAt: convert.TimestampPtr(r.RevokedAt), Selection: r.Selection, ParentId: r.ParentID,
	}
}

// RevokeAPIToken ends a token, and those that it and its tokens have made. One that has ended stays as it is.
func (s *Store) RevokeAPIToken(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.APIToken, error) {
	var out *baremetalv1.APIToken
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.TouchAPITokens(ctx); err != nil {
			return fmt.Errorf("lock tokens: %w", err)
		}
		row, err := q.LockAPIToken(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("API_TOKEN_NOT_FOUND", "there is no token %q; ingot token list shows them",
				id).WithField("token_id", "unknown")
		}
		if err != nil {
			return fmt.Errorf("lock token: %w", err)
		}
		ended, err := q.RevokeAPITokens(ctx, dbsqlc.RevokeAPITokensParams{TokenID: id, Now: &now})
		if err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		if row.RevokedAt == nil {
			row.RevokedAt = &now
		} else {
			ended = append(ended, dbsqlc.RevokeAPITokensRow{TokenID: id, Name: row.Name})
		}
		out = apiToken(row)
		for _, e := range ended {
			data := map[string]string{"name": e.Name}
			if e.TokenID != id {
				data["with"] = id
			}
			if err := history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REVOKE_API_TOKEN", Target: e.TokenID,
				Data: data}, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("revoke token: %w", err)
	}
	return out, nil
}

// ListAPITokens reads the tokens of the database, newest first, from one on.
func (s *Store) ListAPITokens(
	ctx context.Context, all bool, beforeID string, limit int32, now time.Time,
) ([]*baremetalv1.APIToken, error) {
	rows, err := s.db.Lists(ctx).ListAPITokens(ctx, dbsqlc.ListAPITokensParams{AllOfThem: all, BeforeID: beforeID,
		PageSize: limit, Now: now})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	out := make([]*baremetalv1.APIToken, 0, len(rows))
	for _, r := range rows {
		out = append(out, apiToken(r))
	}
	return out, nil
}

// APITokens implements auth.TokenSource.
func (s *Store) APITokens(ctx context.Context, known int64, now time.Time) ([]access.StoredToken, int64, error) {
	version, err := s.db.Q.APITokensVersion(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read version of tokens: %w", err)
	}
	if version == known {
		return nil, known, nil
	}
	rows, err := s.db.Q.APITokensInForce(ctx, dbsqlc.APITokensInForceParams{Now: now, MaxRows: access.MaxTokens})
	if err != nil {
		return nil, 0, fmt.Errorf("read tokens: %w", err)
	}
	out := make([]access.StoredToken, 0, len(rows))
	for _, r := range rows {
		scope, err := access.ParseScope(r.Scope)
		if err != nil || len(r.Hash) != len(access.StoredToken{}.Hash) {
			return nil, 0, fmt.Errorf("token %s in the database is malformed: %w", r.TokenID, err)
		}
		out = append(out, access.StoredToken{ID: r.TokenID, Name: r.Name, Scope: scope, Hash: [32]byte(r.Hash),
			ExpiresAt: r.ExpiresAt, Owner: r.CreatedByIdentity, Selection: r.Selection})
	}
	return out, version, nil
}

// UsedAPITokens implements auth.TokenSource.
func (s *Store) UsedAPITokens(ctx context.Context, used map[string]time.Time) error {
	p := dbsqlc.UsedAPITokensParams{}
	for _, id := range slices.Sorted(maps.Keys(used)) { // in one order, so that controllers do not deadlock
		p.TokenIds = append(p.TokenIds, id)
		p.Ats = append(p.Ats, used[id])
	}
	return pgtx.Wrap(s.db.Q.UsedAPITokens(ctx, p), "record last use of tokens")
}

// RecordTokenFile implements auth.TokenSource.
func (s *Store) RecordTokenFile(ctx context.Context, c access.FileChange) error {
	e := history.AuditEntry{Actor: "controller", Verb: "TOKEN_FILE_CHANGED", Target: "token-file",
		Data: map[string]string{}}
	if c.Start {
		e.Verb = "TOKEN_FILE_LOADED"
	}
	for name, list := range map[string][]string{"added": c.Added, "removed": c.Removed, "changed": c.Changed} {
		if len(list) > 0 {
			e.Data[name] = strings.Join(list, ", ")
		}
	}
	return history.Audit(ctx, s.db.Q, e, c.At)
}
