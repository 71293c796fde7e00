package engine

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// livedThrough brings a machine from its discovery into maintenance. It creates operations in each of the ways that
// there are: transitions, an installation that is reported, requests of clients, a workflow.
func livedThrough(t *testing.T, s *store.Store) {
	t.Helper()
	storetest.Register(t, s, "m-1", storetest.Reporter)
	move := func(to node.State) {
		t.Helper()
		if err := storetest.Transition(s, "m-1", node.Name(to), to, false); err != nil {
			t.Fatal(err)
		}
	}
	report := func(status string) {
		t.Helper()
		if _, err := s.Nodes.ReportNode(t.Context(), &baremetalv1.ReportNodeRequest{MacAddress: storetest.Reporter,
			InstallationStatus: status}, "installer", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	move(node.Pending)
	report(node.Started)
	report(node.Complete)
	move(node.Active)
	move(node.Quarantined)
	storetest.Register(t, s, "m-2")
	storetest.Maintenance(t, s, "m-2")
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-2", RequestID: "exit", Type: fleet.ExitMaintenance})
	// The request ids of different machines may be equal.
	storetest.Register(t, s, "m-3")
	if _, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-3", RequestID: "exit",
		Kind: workflow.Onboarding, EnterMaintenance: true, Actor: "tester",
		Params: map[string]string{workflowstore.ParamPath: workflow.PathAdopt}}, storetest.Now()); err != nil {
		t.Fatal(err)
	}
}

// jobKeys reads the keys of all operations, with the number of unfinished jobs that each has.
func jobKeys(t *testing.T, s *store.Store) map[operationstore.JobKey]int {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(), `SELECT operation_id, target_id, request_id, type, (SELECT count(*)::int
		FROM river_job WHERE kind = 'operation' AND state = 'available' AND args->>'operation_id' = operation_id
			AND args->>'target_id' = target_id AND args->>'request_id' = request_id) FROM operations ORDER BY created_at`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[operationstore.JobKey]int{}
	for rows.Next() {
		var k operationstore.JobKey
		var kind string
		var n int
		if err := rows.Scan(&k.OperationID, &k.MachineID, &k.RequestID, &kind, &n); err != nil {
			t.Fatal(err)
		}
		if out[k] = n; n != 1 {
			t.Errorf("%s %s on %s has %d jobs", kind, k.RequestID, k.MachineID, n)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Every operation has one job of its target and its request, from its transaction on. Several operations of a machine
// have one each, and inserting them again, alone or together, inserts nothing.
func TestEveryOperationHasOneJobOfItsKey(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	livedThrough(t, s)
	keys := jobKeys(t, s)
	if len(keys) < 8 {
		t.Fatalf("%d operations", len(keys))
	}
	var all []operationstore.JobKey
	again := func(keys ...operationstore.JobKey) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
			jobs := make([]*operationstore.NewJob, len(keys))
			for i, k := range keys {
				jobs[i] = &operationstore.NewJob{JobKey: k}
			}
			return e.scheduler.enqueueCreated(t.Context(), tx, jobs)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for k := range keys {
		all = append(all, k)
		again(k)
	}
	again(all...)
	if _, err := e.scheduler.sweepOperations(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobKeys(t, s)
	if n, _ := jobs(t, s, "available"); n != len(keys) {
		t.Errorf("%d jobs of %d operations", n, len(keys))
	}
}

// An operation may have ended in its creating transaction: its job ends, and changes nothing.
func TestJobOfAnEndedOperationChangesNothing(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	storetest.Register(t, s, "m-1", storetest.Reporter)
	if err := storetest.Transition(s, "m-1", "approve", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	before := storetest.Everything(t, s, storetest.Decided...)
	if err := e.RenewLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.scheduler.river.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.scheduler.river.StopAndCancel(t.Context()) }() // nothing is under way by then
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, completed := jobs(t, s, "completed")
		return completed == 1
	}, "the job is not completed")
	if storetest.Everything(t, s, storetest.Decided...) != before {
		t.Error("the job has changed something")
	}
}

// A new operation moves without River, and its job is deleted.
func TestItsCreatorEvaluatesANewOperation(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.scheduler.runFirst(ctx) }()
	testkit.Eventually(t, 30*time.Second, e.scheduler.first.running.Load, "the workers to start")
	id := startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	testkit.Eventually(t, 30*time.Second, func() bool {
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		n, _ := jobs(t, s, "scheduled")
		return err == nil && op.GetPhase() == baremetalv1.Operation_SUCCEEDED && n == 0
	}, "the operation to end, and its job to go")
	second := startOn(t, s, "m-2", fleet.EnterMaintenance, time.Now())
	testkit.Eventually(t, 30*time.Second, func() bool {
		op, err := s.OperationQueries.GetOperation(t.Context(), second)
		return err == nil && op.GetPhase() == baremetalv1.Operation_SUCCEEDED
	}, "the second operation to end")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n, _ := jobs(t, s, "scheduled"); n != 0 {
		t.Errorf("a controller that has stopped leaves %d jobs to the next one", n)
	}
}

// A creator that is killed after its commit leaves the job of its operation. No worker fetches the job at once; soon
// after, any controller does.
func TestTheJobOfAnOperationThatItsCreatorLeft(t *testing.T) {
	s := storetest.New(t)
	alive := engineOver(t, s, "ctl-2", clock.Real())
	killed := engineOver(t, s, "ctl-1", clock.Real()) // the store calls this one
	killed.scheduler.first.running.Store(true)        // and no worker takes jobs that are handed to it
	s.Operations.First.While(nil)
	id := startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	if all, scheduled := jobs(t, s, "scheduled"); all != 1 || scheduled != 1 {
		t.Fatalf("%d jobs, of which %d are scheduled", all, scheduled)
	}
	for _, f := range []func(context.Context) error{alive.RenewLease, alive.leases.keepJobLease, alive.scheduler.river.Start} {
		if err := f(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = alive.scheduler.river.StopAndCancel(t.Context()) }() // nothing is under way by then
	testkit.Eventually(t, 30*time.Second, func() bool {
		if err := alive.leases.keepJobLease(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := alive.scheduler.rescueJobs(t.Context()); err != nil {
			t.Error(err)
		}
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		return err == nil && op.GetPhase() == baremetalv1.Operation_SUCCEEDED
	}, "the operation to move")
}

// Operations beyond the room for first evaluations are not waited for: their jobs stay.
func TestCreationDoesNotWaitForRoom(t *testing.T) {
	s := storetest.New(t)
	e := engineOver(t, s, "ctl", clock.Real())
	e.scheduler.first.running.Store(true)
	e.scheduler.first.waiting = nil // as full as it gets
	s.Operations.First.While(nil)
	startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	if all, scheduled := jobs(t, s, "scheduled"); all != 1 || scheduled != 1 {
		t.Errorf("%d jobs, of which %d are scheduled", all, scheduled)
	}
}
