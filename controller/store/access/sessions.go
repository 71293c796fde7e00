package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// keepSessions is how long a list can still show a session that has ended.
	keepSessions = 90 * 24 * time.Hour
	// revokedFor is how long a revocation counts: longer than a person is signed on anywhere without doing it again.
	revokedFor = keepSessions
)

// RecordSessions implements auth.PeopleSource.
func (s *Store) RecordSessions(ctx context.Context, all []access.Seen) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		for _, one := range all {
			made, err := q.PutSignOnSession(ctx, dbsqlc.PutSignOnSessionParams{
				SessionID: one.Person.Session, Subject: one.Person.Subject, Name: one.Person.Name, Now: one.At,
				ExpiresAt: one.Person.ExpiresAt,
			})
			if err != nil {
				return fmt.Errorf("store session: %w", err)
			}
			if err := recordPerson(ctx, q, one.Person); err != nil {
				return err
			}
			if !made {
				continue
			}
			err = history.Audit(ctx, q, history.AuditEntry{
				Actor: one.Person.Name, Verb: "SIGN_ON", Target: one.Person.Session, Data: map[string]string{
					"issuer": one.Person.Issuer, history.Subject: one.Person.Subject, history.SourceAddress: one.Address,
				},
			}, one.At)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record sessions: %w", err)
	}
	return nil
}

// PutPerson stores a person as a token of the provider names it, and reports whether that token is the newest one.
func PutPerson(ctx context.Context, q *dbsqlc.Queries, p access.Person) (newer bool, err error) {
	groups := p.Groups
	if groups == nil {
		groups = []string{}
	}
	n, err := q.PutPerson(ctx, dbsqlc.PutPersonParams{Identity: p.Identity(), Issuer: p.Issuer, Subject: p.Subject,
		Name: p.Name, Groups: groups, IssuedAt: p.IssuedAt})
	if err != nil {
		return false, fmt.Errorf("store person: %w", err)
	}
	return n > 0, nil
}

// recordPerson stores a person. Controllers read it again where that changes what tokens are worth.
func recordPerson(ctx context.Context, q *dbsqlc.Queries, p access.Person) error {
	newer, err := PutPerson(ctx, q, p)
	if err != nil || !newer {
		return err
	}
	makes, err := q.MakesAPITokens(ctx, p.Identity())
	if err != nil {
		return fmt.Errorf("look for tokens of a person: %w", err)
	}
	if !makes {
		return nil
	}
	if err := q.TouchAPITokens(ctx); err != nil {
		return fmt.Errorf("have tokens read again: %w", err)
	}
	return nil
}

// TokenMakers implements auth.PeopleSource.
func (s *Store) TokenMakers(ctx context.Context, now time.Time) (map[string]access.Person, error) {
	rows, err := s.db.Q.MakersOfAPITokens(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("read makers of tokens: %w", err)
	}
	out := make(map[string]access.Person, len(rows))
	for _, r := range rows {
		out[r.Identity] = access.Person{Issuer: r.Issuer, Subject: r.Subject, Name: r.Name, Groups: r.Groups,
			IssuedAt: r.IssuedAt}
	}
	return out, nil
}

// ListSessions reads sessions, newest first, from one on.
func (s *Store) ListSessions(
	ctx context.Context, all bool, beforeTime time.Time, beforeID string, limit int32, now time.Time,
) ([]*baremetalv1.Session, error) {
	rows, err := s.db.Lists(ctx).ListSignOnSessions(ctx, dbsqlc.ListSignOnSessionsParams{
		AllOfThem: all, BeforeID: beforeID, BeforeTime: beforeTime, PageSize: limit, Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	out := make([]*baremetalv1.Session, 0, len(rows))
	for _, r := range rows {
		out = append(out, sessionMessage(r))
	}
	return out, nil
}

func sessionMessage(r dbsqlc.SignOnSession) *baremetalv1.Session {
	return &baremetalv1.Session{
		SessionId: r.SessionID, Name: r.Name, Subject: r.Subject, CreatedAt: convert.Timestamp(r.CreatedAt),
		LastSeenAt: convert.Timestamp(r.LastSeenAt), ExpiresAt: convert.Timestamp(r.ExpiresAt),
		RevokedAt: convert.TimestampPtr(r.RevokedAt),
	}
}

// RevokeSession ends a session. One that was revoked stays as it is.
func (s *Store) RevokeSession(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.Session, error) {
	var row dbsqlc.SignOnSession
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		if err := q.TouchAPITokens(ctx); err != nil {
			return fmt.Errorf("lock sessions: %w", err)
		}
		row, err = q.RevokeSignOnSession(ctx, dbsqlc.RevokeSignOnSessionParams{SessionID: id, Now: now})
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("SESSION_NOT_FOUND", "there is no session %q; ingot session list shows them", id).
				WithField("session_id", "unknown")
		}
		if err != nil {
			return fmt.Errorf("revoke session: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REVOKE_SESSION", Target: id,
			Data: map[string]string{"name": row.Name}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("revoke session: %w", err)
	}
	return sessionMessage(row), nil
}

// RevokedSessions implements auth.PeopleSource.
func (s *Store) RevokedSessions(ctx context.Context, now time.Time) (map[string]time.Time, error) {
	rows, err := s.db.Q.RevokedSignOnSessions(ctx, now.Add(-revokedFor))
	if err != nil {
		return nil, fmt.Errorf("read revoked sessions: %w", err)
	}
	out := make(map[string]time.Time, len(rows))
	for _, r := range rows {
		if r.RevokedAt != nil {
			out[r.SessionID] = *r.RevokedAt
		}
	}
	return out, nil
}

// TidySessions removes sessions that ended long ago, some at a time.
func (s *Store) TidySessions(ctx context.Context, now time.Time) error {
	const most = 5000
	if _, err := s.db.Q.DropEndedSignOnSessions(ctx, dbsqlc.DropEndedSignOnSessionsParams{
		Before: now.Add(-keepSessions), MaxRows: most,
	}); err != nil {
		return fmt.Errorf("drop ended sessions: %w", err)
	}
	if _, err := s.db.Q.DropPeople(
		ctx,
		dbsqlc.DropPeopleParams{Before: now.Add(-keepSessions), MaxRows: most},
	); err != nil {
		return fmt.Errorf("drop people: %w", err)
	}
	_, err := s.db.Q.DropConsoleSignOuts(ctx, dbsqlc.DropConsoleSignOutsParams{Before: now, MaxRows: most})
	return pgtx.Wrap(err, "drop sign-outs")
}

// SignOut ends a session of the console on all controllers. Its cookie counts for nothing until it expires.
func (s *Store) SignOut(ctx context.Context, sessionID string, expires time.Time) error {
	err := s.db.Q.PutConsoleSignOut(ctx, dbsqlc.PutConsoleSignOutParams{SessionID: sessionID, ExpiresAt: expires})
	return pgtx.Wrap(err, "store sign-out")
}

// SignedOut reports whether a session of the console has been signed out of, on any controller.
func (s *Store) SignedOut(ctx context.Context, sessionID string) (bool, error) {
	out, err := s.db.Q.ConsoleSignedOut(ctx, sessionID)
	return out, pgtx.Wrap(err, "read sign-out")
}
