package storetest

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/controller/store"
)

// References without a foreign key hold all the same after a life: none points to a missing row.
func NothingDangles(t *testing.T, s *store.Store) {
	t.Helper()
	for _, r := range []struct{ from, column, to, key string }{
		{"operations", "target_id", "machines", "machine_id"},
		{"operations", "plan_id", "plans", "plan_id"},
		{"operation_steps", "operation_id", "operations", "operation_id"},
		{"operation_events", "operation_id", "operations", "operation_id"},
		{"commands", "operation_id", "operations", "operation_id"},
		{"commands", "target_id", "machines", "machine_id"},
		{"commands", "executor_id", "agents", "agent_id"},
		{"machines", "current_operation_id", "operations", "operation_id"},
	} {
		n := Count(t, s,
			fmt.Sprintf("SELECT count(*) FROM %s f WHERE %s IS NOT NULL AND NOT EXISTS (SELECT 1 FROM %s t WHERE t.%s = f.%s)",
				r.from, r.column, r.to, r.key, r.column))
		if n != 0 {
			t.Errorf("%d rows of %s have a %s that is in no row of %s", n, r.from, r.column, r.to)
		}
	}
}

func WaitingForLocks(t *testing.T, s *store.Store) int {
	return Count(t, s,
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}
