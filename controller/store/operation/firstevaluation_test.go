package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// starts are operations of m-1, and whether the transactions that create them can evaluate them.
var starts = map[string]struct {
	decided bool
	begin   func(*testing.T, *store.Store) operationstore.StartRequest
}{
	"reboot": {true, func(t *testing.T, s *store.Store) operationstore.StartRequest {
		storetest.Live(t, s, "m-1")
		return operationstore.StartRequest{Type: fleet.Reboot, Params: map[string]string{"mode": "graceful"}}
	}},
	"netboot": {true, func(t *testing.T, s *store.Store) operationstore.StartRequest {
		storetest.Live(t, s, "m-1")
		return operationstore.StartRequest{Type: fleet.Netboot}
	}},
	"maintenance, which the node's state follows": {false, func(t *testing.T, s *store.Store) operationstore.StartRequest {
		storetest.Live(t, s, "m-1")
		return operationstore.StartRequest{Type: fleet.ExitMaintenance}
	}},
	"an agent that is away": {true, func(t *testing.T, s *store.Store) operationstore.StartRequest {
		a := storetest.Live(t, s, "m-1")
		h := a.Hello("st-1", "boot-1")
		storetest.Open(t, s, h)
		if err := s.Sessions.EndSession(t.Context(), a.ID, h.SessionID, storetest.Now()); err != nil {
			t.Fatal(err)
		}
		return operationstore.StartRequest{Type: fleet.Reboot}
	}},
	"a reimage, which waits for its slot": {false, func(t *testing.T, s *store.Store) operationstore.StartRequest {
		r := storetest.NewMetalRigOn(t, s)
		r.OfMetal(`{"name":"sda","serial":"QM1","size_bytes":1073741824}`, "reboot", "netboot")
		return operationstore.StartRequest{Type: fleet.Reimage, Inputs: storetest.Inputs("tiny"), Actor: "x"}
	}},
}

// A start that is decided where it is created writes what the start and its first evaluation write one after the other.
func TestADecidedStartWritesTheSameRows(t *testing.T) {
	for name, of := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := func(s *store.Store) (id string) {
				r := of.begin(t, s)
				r.MachineID, r.RequestID = "m-1", "r"
				return storetest.Start(t, s, r).GetOperationId()
			}
			apart, together := storetest.New(t), storetest.New(t)
			first := storetest.Decide(t, apart, begun(apart), operation.Due{})
			storetest.AtOnce(together)
			var jobs []*operationstore.NewJob
			together.Operations.OnCreated(nil, func(created []*operationstore.NewJob) { jobs = append(jobs, created...) })
			var told []*operationstore.Applied
			together.Operations.OnApplied(func(a *operationstore.Applied) { told = append(told, a) })
			id := begun(together)
			if decided := jobs[len(jobs)-1].Decided; decided != of.decided {
				t.Fatalf("decided %t", decided)
			}
			if !of.decided {
				storetest.Decide(t, together, id, operation.Due{})
			} else if a := told[len(told)-1]; a.OperationID != id || a.Phase != first.Phase || len(a.Send) != len(first.Send) {
				t.Errorf("told %+v, apart it was %+v", a, first)
			}
			now := storetest.Now()
			if is, want := storetest.Rows(t, together, now), storetest.Rows(t, apart, now); is != want {
				t.Errorf("together:\n%s\napart:\n%s", is, want)
			}
		})
	}
}

// No start is lost for its first evaluation: it is created, and its job evaluates it.
func TestAFirstEvaluationThatFails(t *testing.T) {
	s := storetest.New(t)
	storetest.AtOnce(s)
	for i, action := range []failpoint.Action{failpoint.Error(), failpoint.Panic()} {
		m := fmt.Sprint("m-", i)
		storetest.Live(t, s, m)
		var jobs []*operationstore.NewJob
		s.Operations.OnCreated(nil, func(created []*operationstore.NewJob) { jobs = created })
		scope := failpoint.NewScope()
		scope.Set("store.before-apply", action)
		op, created, err := s.Operations.Start(failpoint.With(t.Context(), scope),
			operationstore.StartRequest{MachineID: m, RequestID: "r", Type: fleet.Reboot}, storetest.Now())
		if err != nil || !created || len(jobs) != 1 || jobs[0].Decided {
			t.Fatalf("created %t, %v; jobs %+v", created, err, jobs)
		}
		if a := storetest.Decide(t, s, op.GetOperationId(), operation.Due{}); a.Phase != operation.Running {
			t.Errorf("its job finds it %s", a.Phase)
		}
	}
}

// A reboot writes in four transactions of operations and sessions: its start, the grant, the new session, the result.
func TestTransactionsOfAReboot(t *testing.T) {
	const most = 4
	c := &storetest.Trips{}
	s := storetest.With(t, store.Config{Tracer: c})
	storetest.AtOnce(s)
	a := storetest.Live(t, s, "m-1")
	var told *operationstore.Applied
	s.Operations.OnApplied(func(a *operationstore.Applied) { told = a })
	before := c.Transactions.Load()
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}).GetOperationId()
	storetest.Decide(t, s, id, storetest.Ask(a, told.Command, 1, 1))
	h := a.Hello("st-1", "boot-2")
	h.LastGrantSeq = 1
	storetest.Open(t, s, h)
	if told.OperationID != id || told.Decision.OpChanged {
		t.Errorf("the session tells %+v", told.Decision)
	}
	storetest.Decide(t, s, id, operation.Resulted{CommandID: told.Command.ID, AgentID: a.ID, StateID: "st-1",
		Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2"})
	n := c.Transactions.Load() - before
	storetest.Whole(t, s, "m-1", id, operation.Succeeded)
	if n > most {
		t.Errorf("%d transactions, at most %d are wanted", n, most)
	}
}

// The time of a change is that at which it held its machine's lock. Otherwise the first step of a start would begin
// before the end of the operation that the start waited for.
func TestTheTimeOfAChangeThatHasWaited(t *testing.T) {
	for name, of := range map[string]func(s *store.Store, a storetest.Enrolled) (wait func(context.Context) error){
		"start": func(s *store.Store, _ storetest.Enrolled) func(context.Context) error {
			return func(ctx context.Context) error {
				_, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
					Type: fleet.Reboot}, storetest.Now())
				return err
			}
		},
		"session": func(s *store.Store, a storetest.Enrolled) func(context.Context) error {
			var told *operationstore.Applied
			s.Operations.OnApplied(func(a *operationstore.Applied) { told = a })
			id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
				Type: fleet.Reboot}).GetOperationId()
			storetest.Decide(t, s, id, storetest.Ask(a, told.Command, 1, 1))
			h := a.Hello("st-1", "boot-2") // which does not remember the grant
			return func(ctx context.Context) error {
				_, err := s.Sessions.OpenSession(ctx, h, storetest.Now())
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			storetest.AtOnce(s)
			wait := of(s, storetest.Live(t, s, "m-1"))
			var released time.Time
			g := &errgroup.Group{}
			err := pgx.BeginFunc(t.Context(), s.DB.Pool(), func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SELECT FROM machines WHERE machine_id = 'm-1' FOR UPDATE"); err != nil {
					return err
				}
				g.Go(func() error { return wait(t.Context()) })
				storetest.Eventually(t, func() bool { return storetest.WaitingForLocks(t, s) > 0 }, "it does not wait")
				released = storetest.Now()
				return nil
			})
			if err := errors.Join(err, g.Wait()); err != nil {
				t.Fatal(err)
			}
			n := storetest.Count(t, s, "SELECT count(*) FROM operation_events WHERE ts >= '"+
				released.Format(time.RFC3339Nano)+"'")
			if n == 0 {
				t.Errorf("nothing is stored of the time after the machine was free at %s", released)
			}
		})
	}
}

// Jobs of evaluated operations go with the next change that is stored. A change that is refused leaves them, and so do
// jobs that are worked on.
func TestTheNextChangeDeletesJobs(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	ctx := t.Context()
	left := func() int { return storetest.Count(t, s, "SELECT count(*) FROM river_job") }
	insert := func(state string) (id int64) {
		err := s.DB.Pool().QueryRow(ctx, `INSERT INTO river_job (state, args, kind, max_attempts, scheduled_at)
			VALUES ($1, '{}', 'test', 5, now()) RETURNING id`, state).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	s.Operations.First.Done(insert("scheduled"), insert("scheduled"), insert("available"))
	start := func(machine string) error {
		_, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: machine, RequestID: "r",
			Type: fleet.Reboot}, storetest.Now())
		return err
	}
	storetest.WantReason(t, start("m-none"), "MACHINE_NOT_FOUND")
	if n := left(); n != 3 {
		t.Fatalf("a refused start leaves %d jobs", n)
	}
	if err := start("m-1"); err != nil || left() != 1 {
		t.Fatalf("a start leaves %d jobs, %v", left(), err)
	}
	held := insert("scheduled")
	s.Operations.First.Done(held)
	if err := pgx.BeginFunc(ctx, s.DB.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM river_job WHERE id = $1 FOR UPDATE", held); err != nil {
			return err
		}
		return s.Operations.First.DeleteJobs(ctx)
	}); err != nil || left() != 2 {
		t.Errorf("a job that another transaction has locked: %d jobs, %v", left(), err)
	}
}

// The transaction of a set evaluates its new operations. OnApplied's function gets each decision once.
func TestStartsOfASetAreDecidedWithIt(t *testing.T) {
	s := storetest.New(t)
	const machines = 16
	for i := range machines {
		storetest.Live(t, s, fmt.Sprint("m-", i))
	}
	storetest.AtOnce(s)
	h := storetest.Listen(s)
	ids := make([]string, machines)
	for i, err := range storetest.Together(t, machines, func(ctx context.Context, i int) error {
		op, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: fmt.Sprint("m-", i), RequestID: "r",
			Type: fleet.Reboot}, storetest.Now())
		ids[i] = op.GetOperationId()
		return err
	}) {
		if err != nil {
			t.Errorf("start %d: %v", i, err)
		}
	}
	told := map[string]int{}
	for _, a := range h.Applied {
		told[a.OperationID]++
		if len(a.Send) != 1 {
			t.Errorf("%d commands to send of %s", len(a.Send), a.OperationID)
		}
	}
	for _, id := range ids {
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		if err != nil || op.GetPhase() != baremetalv1.Operation_RUNNING || told[id] != 1 {
			t.Errorf("%s, told %d times, %v", op.GetPhase(), told[id], err)
		}
	}
}
