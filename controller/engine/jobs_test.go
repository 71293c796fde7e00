package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// engineOver returns an engine over the store that is not running: nothing looks but what the test calls.
func engineOver(t *testing.T, s *store.Store, controllerID string, c clock.Clock) *Engine {
	t.Helper()
	e, err := New(Config{Store: s, Sessions: session.NewRegistry(), Clock: c, Logger: testkit.Logger(t),
		ControllerID: controllerID})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func startOn(t *testing.T, s *store.Store, machineID string, kind fleet.OperationType, now time.Time) string {
	t.Helper()
	if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: machineID,
		Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester", now); err != nil {
		t.Fatal(err)
	}
	op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: machineID, RequestID: "r",
		Type: kind, Actor: "tester"}, now)
	if err != nil {
		t.Fatal(err)
	}
	return op.GetOperationId()
}

// jobs counts River's jobs of operations, and those of them that have a state.
func jobs(t *testing.T, s *store.Store, state string) (all, inState int) {
	t.Helper()
	err := s.DB.Pool().QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state = $1::text::river_job_state)
		FROM river_job WHERE kind = 'operation'`, state).Scan(&all, &inState)
	if err != nil {
		t.Fatal(err)
	}
	return all, inState
}

// TestASweepInsertsNoSecondJob: an operation has its job from its creation on. However often sweeps find it due, there
// is one; once that has finished and the operation is due again, there is another one.
func TestASweepInsertsNoSecondJob(t *testing.T) {
	s := storetest.New(t)
	hands := clock.NewFake(time.Now())
	e := engineOver(t, s, "ctl", hands)
	const machines = 20
	for i := range machines {
		startOn(t, s, fmt.Sprintf("m-%02d", i), fleet.EnterMaintenance, hands.Now())
	}
	for round := range 3 {
		if all, waiting := jobs(t, s, "available"); all != machines || waiting != machines {
			t.Fatalf("round %d: %d jobs, %d of them wait", round, all, waiting)
		}
		hands.Advance(10 * time.Second)
		if n, err := e.scheduler.sweepOperations(t.Context()); err != nil || n != 0 {
			t.Fatalf("round %d: %d operations without a job, %v", round, n, err)
		}
	}
	// A worker that finishes its job without any effect, as one does whose operation is not due by its clock.
	if _, err := s.DB.Pool().
		Exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now()`); err != nil {
		t.Fatal(err)
	}
	if n, err := e.scheduler.sweepOperations(t.Context()); err != nil || n != machines {
		t.Fatalf("%d operations are given a job again, %v", n, err)
	}
	if _, waiting := jobs(t, s, "available"); waiting != machines {
		t.Fatalf("%d jobs wait", waiting)
	}
}

// TestJobsOfADeadControllerAreTaken: a controller dies with a job under way. Another one takes it once the lease is
// over.
func TestJobsOfADeadControllerAreTaken(t *testing.T) {
	s := storetest.New(t)
	dead, alive := engineOver(t, s, "ctl-1", clock.Real()), engineOver(t, s, "ctl-2", clock.Real())
	for _, e := range []*Engine{dead, alive} {
		if err := e.RenewLease(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.leases.keepJobLease(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	id := startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	// What a controller that is killed in the middle of a job leaves behind is what River wrote when it took the job.
	if _, err := s.DB.Pool().Exec(t.Context(), `UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(),
		attempted_by = '{ctl-0, ctl-1}'`); err != nil {
		t.Fatal(err)
	}
	if n, err := alive.scheduler.rescueJobs(t.Context()); err != nil || n != 0 {
		t.Fatalf("%d jobs taken from a controller that lives, %v", n, err)
	}
	began := time.Now()
	if err := alive.scheduler.river.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alive.scheduler.river.StopAndCancel(t.Context()) }() // nothing is under way by then
	testkit.Eventually(t, 5*time.Second, func() bool {
		if err := alive.leases.keepJobLease(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := alive.scheduler.rescueJobs(t.Context()); err != nil {
			t.Error(err)
		}
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		return err == nil && op.GetPhase() == baremetalv1.Operation_SUCCEEDED
	}, "the operation to move")
	t.Logf("evaluated %v after the last renewal", time.Since(began).Round(time.Millisecond))
}

// TestAFailingEvaluationKeepsItsJob: an evaluation that fails is tried again by the same job, and nothing is discarded.
func TestAFailingEvaluationKeepsItsJob(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	if err := e.RenewLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	// The evaluation cannot be stored.
	if _, err := s.DB.Pool().
		Exec(t.Context(), `ALTER TABLE operations ADD CONSTRAINT none CHECK (phase <> 'SUCCEEDED')`); err != nil {
		t.Fatal(err)
	}
	if err := e.scheduler.river.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.scheduler.river.StopAndCancel(t.Context()) }() // nothing is under way by then
	testkit.Eventually(t, 10*time.Second, func() bool {
		var tries int
		err := s.DB.Pool().QueryRow(t.Context(), `SELECT coalesce(array_length(errors, 1), 0) FROM river_job`).Scan(&tries)
		return err == nil && tries >= 2
	}, "two failed tries")
	if _, err := s.DB.Pool().Exec(t.Context(), `ALTER TABLE operations DROP CONSTRAINT none`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		return err == nil && operation.IsTerminal(operation.Phase(op.GetPhase().String()))
	}, "the operation to end")
	if all, _ := jobs(t, s, "completed"); all != 1 {
		t.Errorf("%d jobs", all)
	}
}

// TestJobsOfAnOlderVersionGo: they stay as long as a controller lives that works on them.
func TestJobsOfAnOlderVersionGo(t *testing.T) {
	s := storetest.New(t)
	older, e := engineOver(t, s, "ctl-1", clock.Real()), engineOver(t, s, "ctl-2", clock.Real())
	for _, c := range []*Engine{older, e} {
		if err := c.RenewLease(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.leases.keepJobLease(t.Context()); err != nil { // an older version renews none
		t.Fatal(err)
	}
	startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	storetest.Exec(t, s, `INSERT INTO river_job (kind, queue, state, args, max_attempts)
		SELECT 'operation_look', 'default', state::river_job_state, '{}', 5
		FROM unnest('{available, running, retryable}'::text[]) state`)
	count := func() (n int) {
		t.Helper()
		if err := s.DB.Pool().QueryRow(t.Context(), "SELECT count(*) FROM river_job").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := e.scheduler.tidyJobs(t.Context()); err != nil || count() != 4 {
		t.Fatalf("%d jobs beside an older controller, %v", count(), err)
	}
	older.peers.leave(t.Context())
	if err := e.scheduler.tidyJobs(t.Context()); err != nil || count() != 1 {
		t.Fatalf("%d jobs without one, %v", count(), err)
	}
	if all, _ := jobs(t, s, "available"); all != 1 {
		t.Errorf("%d jobs of this version", all)
	}
}

// TestARetryDoesNotWaitForAClockThatWasAhead: a job fails on a machine whose clock is ten minutes ahead, and is set
// back. River has written down when to try again by that clock.
func TestARetryDoesNotWaitForAClockThatWasAhead(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	if err := errors.Join(e.RenewLease(t.Context()), e.leases.keepJobLease(t.Context())); err != nil {
		t.Fatal(err)
	}
	scope := failpoint.NewScope()
	scope.Set(fpInJob.Name(), failpoint.Error().At(1))
	startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	if err := e.scheduler.river.Start(failpoint.With(t.Context(), scope)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, func() bool {
		return storetest.Count(t, s, "SELECT count(*) FROM river_job WHERE array_length(errors, 1) = 1") == 1
	}, "the job does not fail")
	if err := e.scheduler.river.StopAndCancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits := func(ahead string) bool {
		t.Helper()
		if err := e.scheduler.tidyJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		return storetest.Count(t, s, "SELECT count(*) FROM river_job WHERE scheduled_at > now() + $1::interval", ahead) == 1
	}
	if !waits("0") {
		t.Error("a retry that is near is hastened")
	}
	if _, err := s.DB.Pool().Exec(t.Context(),
		`UPDATE river_job SET scheduled_at = scheduled_at + interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
	if waits("0") {
		t.Error("the job waits for ten minutes")
	}
	if _, available := jobs(t, s, "available"); available != 1 {
		t.Errorf("%d jobs are available", available)
	}
}

// TestTheDatabaseSaysWhenAJobIsAvailable: a job inserted late in a transaction has the time of its beginning, which the
// database alone knows. A controller's own clock may be hours ahead, and its jobs would wait for so long.
func TestTheDatabaseSaysWhenAJobIsAvailable(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	of := func(n int) *operationstore.NewJob {
		return &operationstore.NewJob{JobKey: operationstore.JobKey{OperationID: fmt.Sprint("op-", n),
			MachineID: fmt.Sprint("m-", n), RequestID: "r"}}
	}
	for name, keys := range map[string][]*operationstore.NewJob{"one": {of(1)}, "several": {of(2), of(3)}} {
		err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(0.01)"); err != nil {
				return err
			}
			if err := e.scheduler.enqueueCreated(t.Context(), tx, keys); err != nil {
				return err
			}
			var same int
			err := tx.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE scheduled_at = now()").Scan(&same)
			if same != len(keys) {
				t.Errorf("%s: %d of %d jobs have the database's time", name, same, len(keys))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
