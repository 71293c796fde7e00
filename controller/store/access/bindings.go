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

const memberGroup, memberSubject = "group", "subject"

// CreateRoleBinding stores a binding. Where the role, member and selection have one, that one gets the new end.
func (s *Store) CreateRoleBinding(
	ctx context.Context, b access.RoleBinding, actor string, now time.Time,
) (*baremetalv1.RoleBinding, error) {
	kind, member := memberGroup, b.Group
	if b.Subject != "" {
		kind, member = memberSubject, b.Subject
	}
	var row dbsqlc.RoleBinding
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.TouchAPITokens(ctx); err != nil {
			return fmt.Errorf("lock roles: %w", err)
		}
		n, err := q.CountRoleBindings(ctx)
		if err != nil {
			return fmt.Errorf("count roles: %w", err)
		}
		if err := access.AdmitBinding(n); err != nil {
			return err
		}
		row, err = q.PutRoleBinding(ctx, dbsqlc.PutRoleBindingParams{
			BindingID: b.ID, Role: string(b.Role), MemberKind: kind, Member: member, Selection: b.Selection, CreatedAt: now,
			CreatedBy: actor, ExpiresAt: pgtx.TimePtr(b.ExpiresAt),
		})
		if err != nil {
			return fmt.Errorf("store role: %w", err)
		}
		return audit(ctx, q, "CREATE_ROLE_BINDING", row, actor, now)
	})
	if err != nil {
		return nil, fmt.Errorf("create role binding: %w", err)
	}
	return bindingMessage(row), nil
}

func audit(
	ctx context.Context, q *dbsqlc.Queries, verb string, row dbsqlc.RoleBinding, actor string, now time.Time,
) error {
	data := map[string]string{"role": row.Role, row.MemberKind: row.Member}
	if row.Selection != "" {
		data["selection"] = row.Selection
	}
	if row.ExpiresAt != nil {
		data["expires_at"] = row.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: verb, Target: row.BindingID, Data: data}, now)
}

// DeleteRoleBinding takes a role away.
func (s *Store) DeleteRoleBinding(
	ctx context.Context, id, actor string, now time.Time,
) (*baremetalv1.RoleBinding, error) {
	var row dbsqlc.RoleBinding
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		if err := q.TouchAPITokens(ctx); err != nil {
			return fmt.Errorf("lock roles: %w", err)
		}
		row, err = q.DeleteRoleBinding(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("ROLE_BINDING_NOT_FOUND", "there is no role binding %q; ingot role list shows them", id).
				WithField("binding_id", "unknown")
		}
		if err != nil {
			return fmt.Errorf("delete role: %w", err)
		}
		return audit(ctx, q, "DELETE_ROLE_BINDING", row, actor, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete role binding: %w", err)
	}
	return bindingMessage(row), nil
}

// ListRoleBindings reads bindings, newest first, from one on.
func (s *Store) ListRoleBindings(
	ctx context.Context, beforeID string, limit int32,
) ([]*baremetalv1.RoleBinding, error) {
	rows, err := s.db.Lists(ctx).ListRoleBindings(ctx, dbsqlc.ListRoleBindingsParams{BeforeID: beforeID, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list role bindings: %w", err)
	}
	out := make([]*baremetalv1.RoleBinding, 0, len(rows))
	for _, r := range rows {
		out = append(out, bindingMessage(r))
	}
	return out, nil
}

// RoleBindings implements auth.PeopleSource.
func (s *Store) RoleBindings(ctx context.Context, now time.Time) ([]access.RoleBinding, error) {
	return RoleBindings(ctx, s.db.Q, now)
}

// RoleBindings reads the bindings that have not ended.
func RoleBindings(ctx context.Context, q *dbsqlc.Queries, now time.Time) ([]access.RoleBinding, error) {
	rows, err := q.RoleBindingsInForce(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("read role bindings: %w", err)
	}
	out := make([]access.RoleBinding, 0, len(rows))
	for _, r := range rows {
		b := access.RoleBinding{ID: r.BindingID, Role: access.Role(r.Role), Selection: r.Selection,
			ExpiresAt: pgtx.TimeVal(r.ExpiresAt)}
		b.Group, b.Subject = groupAndSubject(r)
		out = append(out, b)
	}
	return out, nil
}

func bindingMessage(r dbsqlc.RoleBinding) *baremetalv1.RoleBinding {
	m := &baremetalv1.RoleBinding{
		BindingId: r.BindingID, Role: r.Role, Selection: r.Selection, CreatedAt: convert.Timestamp(r.CreatedAt),
		CreatedBy: r.CreatedBy, ExpiresAt: convert.TimestampPtr(r.ExpiresAt),
	}
	m.Group, m.Subject = groupAndSubject(r)
	return m
}

func groupAndSubject(r dbsqlc.RoleBinding) (group, subject string) {
	if r.MemberKind == memberSubject {
		return "", r.Member
	}
	return r.Member, ""
}
