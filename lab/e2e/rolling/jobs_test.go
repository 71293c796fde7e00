package rolling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/measure"
)

// TestJobs kills each of three controllers with -9 amid operations: every operation that it had in its hands, or that
// was due, is evaluated again soon. Afterwards no job of an operation is left over. On a machine that many tests share,
// a soon is longer than the promised 5 s.
func TestJobs(t *testing.T) {
	t.Parallel()
	j := startJobs(t, 100)
	for i := range j.r.Controllers {
		j.kill(i, 300, crowded.moves)
	}
	j.operate("after", 700, nil)
	j.nothingLeft()
}

// clientsOfJobs is how many clients ask for operations at the same time.
const clientsOfJobs = 64

// jobsRig is three controllers in their default configuration, with simulated machines that netboot when told to.
type jobsRig struct {
	t        *testing.T
	r        *harness.Trio
	db       *pgx.Conn
	machines []string
	clients  []baremetalv1.MachineServiceClient
}

func startJobs(t *testing.T, machines int) *jobsRig {
	t.Helper()
	r := harness.NewUsualTrio(t)
	j := &jobsRig{t: t, r: r, db: r.Database()}
	dir := t.TempDir()
	specs, err := fleet.Register(t.Context(), r.Conn(), dir, "m", 0, machines)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Start(t.Context(), fleet.Config{Dir: dir, Script: fleet.Script{"netboot": {Time: 100 *
		time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Errorf("an agent has ended: %v", err)
		}
	})
	f.Add(specs...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := f.AwaitConnected(ctx, machines); err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		j.machines = append(j.machines, s.Name)
	}
	if err := fleet.Maintain(t.Context(), r.Conn(), j.machines); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		conn, err := r.Dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		j.clients = append(j.clients, baremetalv1.NewMachineServiceClient(conn))
	}
	return j
}

// operate runs operations and returns when all have ended. When half of them are asked for it calls amid.
func (j *jobsRig) operate(request string, operations int, amid func() error) {
	j.t.Helper()
	group, _ := task.New(j.t.Context())
	todo := make(chan int)
	group.Go("feed", func(context.Context) error {
		defer close(todo)
		for i := range operations {
			todo <- i
			if i == operations/2 && amid != nil {
				if err := amid(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for range clientsOfJobs {
		group.Go("client", func(ctx context.Context) error {
			for i := range todo {
				if err := j.begin(ctx, i, request); err != nil {
					j.t.Error(err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		j.t.Fatal(err)
	}
	var succeeded, failed, active int
	testkit.Eventually(j.t, 5*time.Minute, func() bool {
		err := j.db.QueryRow(j.t.Context(), `SELECT count(*) FILTER (WHERE phase = 'SUCCEEDED'),
			count(*) FILTER (WHERE phase IN ('FAILED', 'CANCELED')), count(*) FILTER (WHERE phase IN ('PENDING', 'RUNNING'))
			FROM operations WHERE request_id LIKE $1`, request+"-%").Scan(&succeeded, &failed, &active)
		if err != nil {
			j.t.Fatal(err)
		}
		return active == 0
	}, "operations have not ended")
	if succeeded != operations || failed != 0 {
		j.t.Errorf("of %d operations %d have succeeded, %d failed", operations, succeeded, failed)
	}
}

// begin asks for an operation until it is taken: the machine may still be at work, and a controller may be away.
func (j *jobsRig) begin(ctx context.Context, i int, request string) error {
	client := j.clients[i%len(j.clients)]
	r := &baremetalv1.NetbootMachineRequest{MachineId: j.machines[i%len(j.machines)],
		RequestId: fmt.Sprintf("%s-%d", request, i), TimeoutSeconds: 120}
	for limit := time.Now().Add(2 * time.Minute); ; {
		once, cancel := context.WithTimeout(ctx, 20*time.Second)
		_, err := client.NetbootMachine(once, r, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return nil
		}
		repeat := failure.From(err).Retryable || harness.HasReason(err, "MACHINE_BUSY")
		if !repeat || time.Now().After(limit) {
			return fmt.Errorf("%s: %w", r.GetRequestId(), err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// answering is the id of a controller.
func (j *jobsRig) answering(i int) string {
	j.t.Helper()
	c := j.r.At(j.r.Controllers[i].Addresses().Frontpage)
	list := harness.Must(j.t, c.Admin().ListControllers, &baremetalv1.ListControllersRequest{})
	for _, c := range list.GetControllers() {
		if c.GetAnswering() {
			return c.GetControllerId()
		}
	}
	j.t.Fatalf("controller %d does not name itself", i)
	return ""
}

// hands is why an operation needs an evaluation after a kill: the controller ran its job, it was due, or the
// controller had the session of its agent.
type hands struct {
	Operation               string
	Running, Due, Connected bool
}

// kill runs operations, kills a controller amid them, and holds how soon each that needs it is evaluated again.
func (j *jobsRig) kill(i, operations int, limit time.Duration) {
	j.t.Helper()
	id := j.answering(i)
	var killed, read time.Time
	var held []hands
	j.operate(fmt.Sprintf("kill-%d", i), operations, func() (err error) {
		killed = j.r.Kill(i)
		if err := j.db.QueryRow(j.t.Context(), "SELECT clock_timestamp()").Scan(&read); err != nil {
			return err
		}
		held, err = j.heldBy(id)
		return err
	})
	took := map[string][]time.Duration{}
	for _, h := range held {
		at := j.evaluatedAfter(h.Operation, read)
		if at.IsZero() {
			j.t.Errorf("controller %d: %s was not evaluated again", i, h.Operation)
			continue
		}
		for name, is := range map[string]bool{"job running": h.Running, "due": h.Due, "agent connected": h.Connected,
			"all": true} {
			if is {
				took[name] = append(took[name], at.Sub(killed))
			}
		}
	}
	if len(took["all"]) == 0 {
		j.t.Errorf("controller %d had nothing in its hands", i)
	}
	for _, name := range []string{"job running", "due", "agent connected", "all"} {
		l := measure.Percentiles(took[name])
		j.t.Logf("kill -9 of controller %d amid %d operations: %-15s %4d, evaluated again after p50 %.0f, p99 %.0f, "+
			"p100 %.0f ms", i, operations, name, l.N, l.P50, l.P99, l.Max)
	}
	if all := took["all"]; len(all) > 0 && all[len(all)-1] > limit {
		j.t.Errorf("controller %d: the last was evaluated again %v after the kill, not within %v", i, milli(all[len(all)-1]),
			limit)
	}
	j.r.Controllers[i].Start("")
}

// heldBy returns the operations that a controller held when it died, and those that are due.
func (j *jobsRig) heldBy(controller string) ([]hands, error) {
	rows, err := j.db.Query(j.t.Context(), `WITH running AS (
			SELECT args->>'operation_id' AS operation_id FROM river_job WHERE kind = 'operation' AND state = 'running'
			AND attempted_by[array_upper(attempted_by, 1)] = $1)
		SELECT * FROM (
			SELECT o.operation_id, r.operation_id IS NOT NULL AS running, o.wake_at <= now() AS due,
				EXISTS (SELECT 1 FROM agents a JOIN agent_sessions s USING (agent_id)
					WHERE a.machine_id = o.target_id AND s.controller_id = $1) AS connected
			FROM operations o LEFT JOIN running r USING (operation_id) WHERE o.phase IN ('PENDING', 'RUNNING')) h
		WHERE running OR due OR connected`, controller)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[hands])
}

// evaluatedAfter returns when an operation was next evaluated: a job of it began, or a decision on it was stored.
func (j *jobsRig) evaluatedAfter(operation string, after time.Time) (at time.Time) {
	j.t.Helper()
	if err := j.db.QueryRow(j.t.Context(), `SELECT coalesce(least(
		(SELECT min(ts) FROM operation_events WHERE operation_id = $1 AND ts > $2),
		(SELECT min(attempted_at) FROM river_job
			WHERE kind = 'operation' AND args->>'operation_id' = $1 AND attempted_at > $2)), '0001-01-01 00:00Z')`,
		operation, after).Scan(&at); err != nil {
		j.t.Fatal(err)
	}
	return at
}

// nothingLeft holds that finished jobs go: they are kept for 15 s, and a leader, who may have to be elected first,
// removes them every 30 s.
func (j *jobsRig) nothingLeft() {
	j.t.Helper()
	count := func() (jobs, operations int) {
		if err := j.db.QueryRow(j.t.Context(), `SELECT (SELECT count(*) FROM river_job WHERE kind = 'operation'),
			(SELECT count(*) FROM operations)`).Scan(&jobs, &operations); err != nil {
			j.t.Fatal(err)
		}
		return jobs, operations
	}
	began := time.Now()
	before, operations := count()
	testkit.Eventually(j.t, 2*time.Minute, func() bool {
		jobs, _ := count()
		return jobs == 0
	}, "jobs are left over")
	j.t.Logf("after %d operations: %d jobs, and none %v later", operations, before,
		time.Since(began).Round(time.Second))
}
