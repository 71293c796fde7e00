package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
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
	t, err := s.db.Q.GetToken(ctx, tokenID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, failure.NotFound("TOKEN_NOT_FOUND", "there is no token %q", tokenID).WithField("token_id", "unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		n, err := q.RevokeToken(ctx, dbsqlc.RevokeTokenParams{TokenID: tokenID, Now: &now})
		if err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		if n == 0 && t.RevokedAt == nil {
			return failure.Precondition("TOKEN_NOT_REVOCABLE", "the token has been used; revoke the agent instead")
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

// bindings refuses an agent that does not match the token's site, region, provider or role. Nothing is used up.
func bindings(t dbsqlc.LockTokenRow, r EnrollRequest) error {
	switch {
	case t.BoundRegion != "" && t.BoundRegion != r.Region:
		return failure.Precondition("REGION_PROVIDER_MISMATCH", "the token is for region %q, the agent says %q",
			t.BoundRegion, r.Region)
	case t.BoundProvider != "" && t.BoundProvider != r.Provider:
		return failure.Precondition("REGION_PROVIDER_MISMATCH", "the token is for provider %q, the agent says %q",
			t.BoundProvider, r.Provider)
	case t.BoundMac != "" && !slices.ContainsFunc(r.MACs, func(m string) bool { return hwid.SameMAC(m, t.BoundMac) }):
		return failure.Precondition("HARDWARE_MISMATCH", "the token is for MAC address %s, which the agent does not have",
			t.BoundMac)
	case t.BoundSerial != "" && !hwid.SameSerial(t.BoundSerial, r.Serial):
		return failure.Precondition("HARDWARE_MISMATCH", "the token is for another serial number than the agent's")
	}
	return nil
}
