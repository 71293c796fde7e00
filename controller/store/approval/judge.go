package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Work is destructive work that a caller asks for.
type Work struct {
	Actor    string
	Machines []string
}

// WorkOn is work on one machine.
func WorkOn(machineID, actor string) Work { return Work{Actor: actor, Machines: []string{machineID}} }

// Demanding returns the names of the policies that demand approval of the call's caller for the work. It keeps nothing:
// previews ask it.
func Demanding(ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time) (names []string, err error) {
	found, err := demanding(ctx, q, w, now)
	for _, p := range found {
		names = append(names, p.Name)
	}
	return names, err
}

func demanding(
	ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time,
) ([]dbsqlc.DemandingPoliciesRow, error) {
	if len(w.Machines) == 0 {
		return nil, nil
	}
	found, err := q.DemandingPolicies(ctx, dbsqlc.DemandingPoliciesParams{Identity: identityOf(ctx, w.Actor),
		MachineIds: w.Machines, Now: now, Since: now.Add(-Window)})
	if err != nil {
		return nil, fmt.Errorf("judge work by approval policies: %w", err)
	}
	return found, nil
}

// Begin judges work that begins in the transaction unless policies demand approval. Work that begins counts from then
// on. Callers wait for one another, and for changes of policies, until the transaction ends.
func Begin(ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time) (demanded []string, err error) {
	if err := q.LockApprovals(ctx); err != nil {
		return nil, fmt.Errorf("lock policies: %w", err)
	}
	found, err := begin(ctx, q, w, now)
	for _, p := range found {
		demanded = append(demanded, p.Name)
	}
	return demanded, err
}

// begin is Begin under the lock.
func begin(
	ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time,
) ([]dbsqlc.DemandingPoliciesRow, error) {
	exists, err := q.AnyApprovalPolicy(ctx)
	if err != nil || !exists {
		return nil, err
	}
	found, err := demanding(ctx, q, w, now)
	if err != nil || len(found) > 0 {
		return found, err
	}
	err = q.RecordUnapprovedWork(ctx, dbsqlc.RecordUnapprovedWorkParams{Identity: identityOf(ctx, w.Actor), Now: now,
		MachineIds: w.Machines})
	if err != nil {
		return nil, fmt.Errorf("record unapproved work: %w", err)
	}
	return nil, nil
}

// Admit refuses work on one machine for which a policy demands approval, with APPROVAL_REQUIRED. Work of the
// controller's own, such as a further attempt, has no caller and is not refused. Without policies it costs one
// statement and takes no lock.
func Admit(ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time) error {
	if call.Identity(ctx) == "" {
		return nil
	}
	exists, err := q.AnyApprovalPolicy(ctx)
	if err != nil || !exists {
		return err
	}
	if err := q.LockApprovals(ctx); err != nil {
		return fmt.Errorf("lock policies: %w", err)
	}
	found, err := begin(ctx, q, w, now)
	if err != nil || len(found) == 0 {
		return err
	}
	return start.ApprovalRequired(start.Policy{Name: found[0].Name, Machines: found[0].Machines})
}

// Demanded returns the first policy that demands approval of the call's caller for the work; nil if none does. It keeps
// nothing, takes no lock and is one statement.
func Demanded(ctx context.Context, q *dbsqlc.Queries, w Work, now time.Time) (*start.Policy, error) {
	found, err := demanding(ctx, q, w, now)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &start.Policy{Name: found[0].Name, Machines: found[0].Machines}, nil
}
