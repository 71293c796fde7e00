package budget_test

import (
	"context"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
)

// TestACancelThatIsUnderWayLeavesNoSlotBehind: a waiting operation is being cancelled, has found no slot to give back,
// and has not committed when it would be admitted. Whoever took its slot now would take it for good.
func TestACancelThatIsUnderWayLeavesNoSlotBehind(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	storetest.Decide(t, s, first.op, operation.Evaluate{})

	scope := failpoint.NewScope()
	reached, goOn := make(chan struct{}), make(chan struct{})
	scope.Set("store.before-commit", failpoint.Call(func(context.Context) error {
		close(reached)
		<-goOn
		return nil
	}))
	g, ctx := task.New(t.Context())
	g.Go("cancel", func(context.Context) error {
		_, err := s.Operations.Decide(failpoint.With(ctx, scope), first.op, operation.CancelAsked{Actor: "tester"},
			storetest.Now())
		return err
	})
	<-reached
	admitted := make(chan int, 1)
	g.Go("admit", func(ctx context.Context) error {
		n, _, err := s.Budgets.AdmitDestructive(ctx, storetest.Now())
		admitted <- n
		return err
	})
	// It passes by, or, if it does not, waits for the row that the cancel has locked.
	storetest.Eventually(t, func() bool {
		return len(admitted) == 1 || storetest.Count(t, s, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	}, "the admission neither ends nor waits")
	close(goOn)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := <-admitted; n != 0 {
		t.Errorf("%d admitted beside the one that was being cancelled", n)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots"); n != 0 {
		t.Fatalf("%d slots of an operation that was cancelled while it waited", n)
	}
	// The room is the next one's.
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, second.op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Errorf("the next in order is %s", a.Phase)
	}
}
