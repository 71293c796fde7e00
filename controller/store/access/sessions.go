package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// keepSessions is how long a list can still show a session that has ended.
	keepSessions = 90 * 24 * time.Hour
	// revokedFor is how long a revocation counts: longer than a person is signed on anywhere without doing it again.
	revokedFor = keepSessions
)

// RecordSessions implements auth.PeopleSource.
func (s *Store) RecordSessions(ctx context.Context, all []auth.Seen) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		for _, one := range all {
			made, err := q.PutSignOnSession(ctx, dbsqlc.PutSignOnSessionParams{
				SessionID: one.Person.Session, Subject: one.Person.Subject, Name: one.Person.Name, Now: one.At,
				ExpiresAt: one.Person.ExpiresAt,
			})
			if err != nil {
				return fmt.Errorf("store session: %w", err)
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
	return nil
}
