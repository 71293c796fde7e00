package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/agent"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// ListTokens reads tokens, newest first, from a position on.
func (s *Store) ListTokens(
	ctx context.Context, beforeTime time.Time, beforeID string, limit int32,
) ([]*baremetalv1.BootstrapToken, error) {
	rows, err := s.db.Lists(ctx).ListTokens(ctx, dbsqlc.ListTokensParams{BeforeTime: beforeTime, BeforeID: beforeID,
		PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	out := make([]*baremetalv1.BootstrapToken, 0, len(rows))
	for _, r := range rows {
		out = append(out, tokenMessage(r))
	}
	return out, nil
}

func tokenMessage(r dbsqlc.ListTokensRow) *baremetalv1.BootstrapToken {
	return &baremetalv1.BootstrapToken{
		TokenId: r.TokenID, MachineId: r.MachineID, Role: roleMessage(r.Role), Site: r.Site,
		CreatedAt: convert.Timestamp(r.CreatedAt),
		ExpiresAt: convert.Timestamp(r.ExpiresAt), UsedAt: convert.TimestampPtr(r.UsedAt), UsedByAgentId: r.UsedByAgentID,
		RevokedAt: convert.TimestampPtr(r.RevokedAt),
		Region:    r.BoundRegion, Provider: r.BoundProvider,
	}
}

// RevokeToken ends a token that has not been used.
func (s *Store) RevokeToken(
	ctx context.Context, tokenID, actor string, now time.Time,
) (*baremetalv1.BootstrapToken, error) {
	var t dbsqlc.LockTokenRow
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		t, err = q.LockToken(ctx, tokenID)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("TOKEN_NOT_FOUND", "there is no token %q", tokenID).WithField("token_id", "unknown")
		}
		if err != nil {
			return fmt.Errorf("lock token: %w", err)
		}
		if err := agent.MayRevoke(t.UsedAt != nil, t.RevokedAt != nil); err != nil {
			return err
		}
		if _, err := q.RevokeToken(ctx, dbsqlc.RevokeTokenParams{TokenID: tokenID, Now: &now}); err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REVOKE_TOKEN", Target: pgtx.StrVal(t.MachineID),
			Data: map[string]string{"token_id": tokenID}}, now)
	})
	if err != nil {
		return nil, err
	}
	if t.RevokedAt == nil {
		t.RevokedAt = &now
	}
	return tokenMessage(dbsqlc.ListTokensRow{
		TokenID: t.TokenID, Role: t.Role, MachineID: pgtx.StrVal(t.MachineID), Site: t.Site, BoundRegion: t.BoundRegion,
		BoundProvider: t.BoundProvider, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	}), nil
}
