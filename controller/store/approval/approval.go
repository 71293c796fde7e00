// Package approval stores the policies that demand a second person's approval, and judges work by them.
package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Window is how long unapproved work counts, and how long a person is held to a policy that it has replaced.
const Window = 24 * time.Hour

// Store holds approval policies. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// SetApprovalPolicy makes a policy, or replaces it. The selections are those of its text, which has been checked.
func (s *Store) SetApprovalPolicy(
	ctx context.Context, p *baremetalv1.ApprovalPolicy, in machinefilter.Selections, actor string, now time.Time,
	opts ...pgtx.WriteOption,
) (*baremetalv1.ApprovalPolicy, error) {
	var row dbsqlc.ApprovalPolicy
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		version, err := retire(ctx, q, p.GetName(), actor, now)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		row, err = q.InsertApprovalPolicy(ctx, dbsqlc.InsertApprovalPolicyParams{Name: p.GetName(),
			Harm: p.GetHarm().String(), Selection: p.GetSelection(), Terms: terms(in), Machines: p.GetMachines(),
			SetBy: actor, Now: now, Version: version.Version + 1})
		if err != nil {
			return fmt.Errorf("insert policy: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("approval policy "+row.Name, row.Version); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "SET_APPROVAL_POLICY", Target: row.Name,
			Data: dataOf(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("set approval policy: %w", err)
	}
	return message(row), nil
}

// terms returns selections as the database reads them; no selection holds every machine.
func terms(in machinefilter.Selections) []byte {
	if !in.Narrow() {
		return []byte("[[]]")
	}
	return in.SQL()
}

// retire ends a policy for all identities but the caller's, for which it stays in force until Window is over. It locks
// out transactions that judge work. It returns pgx.ErrNoRows where there is no such policy.
func retire(
	ctx context.Context, q *dbsqlc.Queries, name, actor string, now time.Time,
) (row dbsqlc.ApprovalPolicy, err error) {
	if err := q.LockApprovals(ctx); err != nil {
		return row, fmt.Errorf("lock policies: %w", err)
	}
	if row, err = q.ApprovalPolicy(ctx, name); err != nil {
		return row, err
	}
	until := now.Add(Window)
	err = q.RetireApprovalPolicy(ctx, dbsqlc.RetireApprovalPolicyParams{PolicyID: row.PolicyID,
		HeldTo: identityOf(ctx, actor), HeldUntil: &until})
	return row, pgtx.Wrap(err, "retire policy")
}

// identityOf returns the root identity of a call's caller; without one, the actor's name.
func identityOf(ctx context.Context, actor string) string {
	if id := call.Identity(ctx); id != "" {
		return id
	}
	return "actor " + actor
}

// ListApprovalPolicies returns the policies in force, by name.
func (s *Store) ListApprovalPolicies(
	ctx context.Context, after string, limit int32,
) ([]*baremetalv1.ApprovalPolicy, error) {
	rows, err := s.db.Lists(ctx).ApprovalPoliciesAfter(ctx,
		dbsqlc.ApprovalPoliciesAfterParams{AfterName: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list approval policies: %w", err)
	}
	out := make([]*baremetalv1.ApprovalPolicy, 0, len(rows))
	for _, r := range rows {
		out = append(out, message(r))
	}
	return out, nil
}

// DeleteApprovalPolicy removes a policy; APPROVAL_POLICY_NOT_FOUND where there is none.
func (s *Store) DeleteApprovalPolicy(
	ctx context.Context, name, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.ApprovalPolicy, error) {
	var row dbsqlc.ApprovalPolicy
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		row, err = retire(ctx, q, name, actor, now)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("APPROVAL_POLICY_NOT_FOUND", "there is no approval policy %q", name).
				WithField("name", "unknown")
		}
		if err != nil {
			return err
		}
		if err := pgtx.ConditionsOf(opts).Check("approval policy "+name, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_APPROVAL_POLICY", Target: name,
			Data: dataOf(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete approval policy: %w", err)
	}
	return message(row), nil
}

// ForgetUnapprovedWork removes work and retired policies that no longer count.
func (s *Store) ForgetUnapprovedWork(ctx context.Context, now time.Time) error {
	return pgtx.Wrap(s.db.Q.ForgetUnapprovedWork(ctx, now.Add(-Window)), "remove old unapproved work")
}

func dataOf(p dbsqlc.ApprovalPolicy) map[string]string {
	return map[string]string{"harm": p.Harm, "selection": p.Selection, "machines": fmt.Sprint(p.Machines)}
}

func message(p dbsqlc.ApprovalPolicy) *baremetalv1.ApprovalPolicy {
	return &baremetalv1.ApprovalPolicy{Name: p.Name,
		Harm:      baremetalv1.ApprovalPolicy_Harm(baremetalv1.ApprovalPolicy_Harm_value[p.Harm]),
		Selection: p.Selection, Machines: p.Machines, SetBy: p.SetBy, UpdatedAt: convert.Timestamp(p.UpdatedAt),
		Version: p.Version}
}
