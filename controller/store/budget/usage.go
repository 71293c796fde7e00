package budget

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
)

// BudgetUsage returns how much of each budget is taken, and how many operations wait for a slot.
func (s *Store) BudgetUsage(ctx context.Context, now time.Time) (used []budget.Used, waiting int64, err error) {
	if waiting, err = s.db.Q.CountWaitingForBudget(ctx); err != nil {
		return nil, 0, fmt.Errorf("count who waits for a slot: %w", err)
	}
	rules, groups, slots, err := BudgetWorld(ctx, s.db.Q, &s.Counts, now)
	if err != nil {
		return nil, 0, err
	}
	return budget.NewRound(rules, groups, slots, now).Usage(), waiting, nil
}
