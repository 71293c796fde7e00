package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
)

// faults makes one statement of a store fail: the nth that it sends while it is armed. A batch counts as one.
type faults struct {
	mu        sync.Mutex
	nth, seen int
	hit       string
	// committed reports whether a transaction was committed before the statement failed.
	committed bool
}

// faulty has the faults of stores that were made by NewFaulty.
var faulty sync.Map // *store.Store: *faults

// NewFaulty returns a store that repeats calls through this package's helpers. A call is made once for each of its
// statements, with that one failing, before it is made without a failure.
func NewFaulty(t testing.TB) *store.Store {
	t.Helper()
	f := &faults{}
	s := With(t, store.Config{Tracer: f})
	faulty.Store(s, f)
	t.Cleanup(func() { faulty.Delete(s) })
	return s
}

func (f *faults) arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth, f.seen, f.hit, f.committed = n, 0, "", false
}

// disarm returns the statement that failed, empty where the call sent fewer, and reports whether it followed a commit.
func (f *faults) disarm() (failed string, committed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth = 0
	return f.hit, f.committed
}

// next counts a statement. The context of the one that is to fail has ended before it is sent. A COMMIT that fails is
// tried again, and fails each time. A ROLLBACK is left out: it changes nothing, however it ends.
func (f *faults) next(ctx context.Context, sql string) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sql == "rollback" {
		return ctx
	}
	f.seen++
	if again := sql == "commit" && f.hit == sql; f.seen != f.nth && !again {
		f.committed = f.committed || f.hit == "" && sql == "commit"
		return ctx
	}
	f.hit = sql
	over, cancel := context.WithCancel(ctx)
	cancel()
	return over
}

// TraceQueryStart implements pgx.QueryTracer.
func (f *faults) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return f.next(ctx, d.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (f *faults) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (f *faults) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	return f.next(ctx, "a batch: "+d.Batch.QueuedQueries[0].SQL)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (f *faults) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (f *faults) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// kept are the tables that a call which fails leaves as they are.
var kept = append([]string{"workflows", "node_state_log", "agents", "agent_sessions", "node_reports", "budgets",
	"budget_slots", "inventories", "provider_observations", "controllers", "cluster_state"}, Decided...)

// Each makes a call. Of a faulty store it makes it once for each of its statements before, with that one failing: the
// call returns the error, and changes nothing. Where the statement that fails reads the answer after the commit, the
// call is done. Of a recorded store it records what the call changes.
func Each(t testing.TB, s *store.Store, call func() error) error {
	t.Helper()
	if r, ok := recorded.Load(s); ok {
		err := call()
		r.(*recording).note(t, s, time.Now())
		return err
	}
	v, ok := faulty.Load(s)
	if !ok {
		return call()
	}
	f := v.(*faults)
	const most = 1000
	before := Everything(t, s, kept...)
	for n := 1; n < most; n++ {
		f.arm(n)
		err := call()
		failed, committed := f.disarm()
		if failed == "" {
			return err
		}
		if err == nil {
			t.Errorf("statement %d has failed, and the call succeeds: %s", n, failed)
			return nil
		}
		after := Everything(t, s, kept...)
		if after != before && committed {
			return nil
		}
		if after != before {
			t.Errorf("statement %d has failed, and something has changed: %s", n, failed)
		}
	}
	t.Fatal("the call has no end")
	return nil
}

// Call is a call of a store.
type Call struct {
	Name string
	// Before, and After, are called once, and may be nil.
	Before func()
	Do     func() error
	After  func()
}

// Calls makes calls one after the other, each as Each does. The error of a statement that has failed must be the one
// that the call returns.
func Calls(t testing.TB, s *store.Store, calls ...Call) {
	t.Helper()
	for _, c := range calls {
		if c.Before != nil {
			c.Before()
		}
		err := Each(t, s, func() error {
			err := c.Do()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s returns %v", c.Name, err)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if c.After != nil {
			c.After()
		}
		if t.Failed() {
			t.Fatalf("after %s", c.Name)
		}
	}
}
