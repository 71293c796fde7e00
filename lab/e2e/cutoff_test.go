package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/relay"
)

func TestAControllerThatIsCutOffFromItsDatabase(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name      string
		cut, heal func(*harness.Relay)
	}{
		{"refused", (*harness.Relay).Block, (*harness.Relay).Unblock},
		{"swallowed", (*harness.Relay).Freeze, func(r *harness.Relay) { r.Cut(); r.Thaw() }},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := harness.New(t, harness.Options{})
			m := c.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			rig.Maintenance(t, c.Client, m.ID)
			// The agent holds the command and asks for its grant when half of the lease has passed without Postgres.
			holding, ask := make(chan struct{}), make(chan struct{})
			m.FP.Set("agent.before-grant-request", failpoint.Call(func(context.Context) error {
				close(holding)
				<-ask
				return nil
			}).At(1))
			op := rig.Reboot(t, c.Client, m.ID, "r", 60)
			<-holding
			database := c.Database()
			dials := m.Dials()
			cutAt := time.Now()
			way.cut(database)
			<-time.After(rig.Lease/2 + 300*time.Millisecond)
			if m.Dials() != dials {
				t.Errorf("the stream was closed %v after the cut; the lease is %v", time.Since(cutAt), rig.Lease)
			}
			close(ask)
			testkit.Eventually(t, rig.Soon, func() bool { return m.Dials() > dials }, "the streams outlive the lease")
			took := time.Since(cutAt)
			if took > rig.Lease+10*time.Second {
				t.Errorf("the streams were closed %v after the cut; the lease is %v", took, rig.Lease)
			}
			if ready, answer := c.Readiness(); ready {
				t.Errorf("ready without a database: %s", answer)
			}
			if n := len(m.Journal()); n != 0 {
				t.Errorf("%d records in the journal: nothing may start without a grant", n)
			}
			way.heal(database)
			rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
			rig.Clean(t, m.WaitQuiet(rig.Soon))
			testkit.Eventually(t, rig.Soon, func() bool { ready, _ := c.Readiness(); return ready }, "not ready again")
			t.Logf("streams closed %v after the cut (lease %v)", took.Round(10*time.Millisecond), rig.Lease)
		})
	}
}

func TestADatabaseThatIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Stopped: true, DatabaseDown: true})
	c.Start()
	testkit.Eventually(t, rig.Soon, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.Machines().ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
		return status.Code(err) == codes.Unavailable && harness.HasReason(err, "DATABASE_UNAVAILABLE")
	}, "calls do not say that the database is away")
	if ready, answer := c.Readiness(); ready {
		t.Errorf("ready without a database: %s", answer)
	}
	c.Database().Unblock()
	c.WaitReady()
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	works(t, c, m)
}

// TestReadinessFollowsWrites has the database answer and refuse every write, as one does after a failover to a server
// that was not promoted.
func TestReadinessFollowsWrites(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	c := harness.NewControllerProcessOn(t, url)
	c.Start("")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	readOnly := func(value string) {
		for _, sql := range []string{
			"SET default_transaction_read_only = off",
			fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = %s",
				pgx.Identifier{conn.Config().Database}.Sanitize(), value),
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	readOnly("on")
	testkit.Eventually(t, rig.Soon, func() bool {
		ready, answer := c.Readiness()
		return !ready && strings.Contains(answer, `"database":"ok"`) && strings.Contains(answer, "has stored nothing")
	}, "still ready")
	readOnly("off")
	testkit.Eventually(t, rig.Soon, func() bool { ready, _ := c.Readiness(); return ready }, "not ready again")
}

func TestADatabaseThatGoesAwayInMidFlight(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:late=2s"})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := rig.Reboot(t, c.Client, m.ID, "r", 60)
	testkit.Eventually(t, rig.Soon, func() bool { return len(m.Journal()) > 0 }, "the reboot is not asked for")
	c.Database().Block()
	// The reboot happens meanwhile, and the agent has no controller to report to.
	testkit.Eventually(t, rig.Soon, func() bool {
		ready, _ := c.Readiness()
		return !ready && len(m.Journal()) >= 2
	}, "no reboot, or still ready")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: op.GetOperationId()})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without a database: %v", err)
	}
	c.Database().Unblock()
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// While each third COMMIT of the controller is lost, or the answer to it, a site's agent restarts all machines of its
// site. Each is restarted once, and neither the agent nor a machine is accused of anything.
func TestCommitsThatAreLost(t *testing.T) {
	t.Parallel()
	for loss, name := range map[relay.Loss]string{
		relay.LostRequest: "request", relay.LostAnswer: "answer", relay.LostBoth: "both",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const machines, rounds = 16, 3
			c := harness.New(t, harness.Options{})
			world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			site := c.NewSite(t, "dallas", world, harness.MachineOptions{})
			site.WaitConnected()
			id := func(i int) string { return fmt.Sprintf("m-%d", i) }
			for i := range machines {
				c.Register(&baremetalv1.Machine{MachineId: id(i), Spec: &baremetalv1.MachineSpec{Provider: "fake",
					Site: "dallas"}})
				rig.Maintenance(t, c.Client, id(i))
			}
			c.Database().LoseCommits(3, loss)
			for r := range rounds {
				operations := make([]string, machines)
				atOnce(machines, func(i int) {
					operations[i] = rebootWhatever(t, c, id(i), fmt.Sprint("r-", r))
				})
				for _, o := range operations {
					rig.Ended(t, c.Wait(o, 4*rig.Soon), rig.Succeeded, "")
				}
			}
			lost := c.Database().Lost()
			c.Database().Heal()
			restarts := map[string]int{}
			for _, e := range site.Journal() {
				if e.Stage == sim.StageEffect {
					restarts[e.MachineID]++
				}
			}
			for i := range machines {
				if n := len(c.OperationsOf(id(i))); n != rounds+1 || restarts[id(i)] != rounds {
					t.Errorf("%s: %d operations and %d restarts of %d", id(i), n, restarts[id(i)], rounds)
				}
				if reason := c.Machine(id(i)).GetStatus().GetAttentionReason(); reason != "" {
					t.Errorf("%s is held back by %s", id(i), reason)
				}
			}
			if lost == 0 {
				t.Error("no COMMIT was lost")
			}
			t.Logf("%d COMMITs were lost", lost)
		})
	}
}

// rebootWhatever starts a reboot, and asks again under the same request id while the database is not available.
func rebootWhatever(t *testing.T, c *harness.Cluster, id, request string) string {
	for {
		op, err := c.Machines().RebootMachine(t.Context(), &baremetalv1.RebootMachineRequest{MachineId: id,
			RequestId: request, TimeoutSeconds: 600}) // each lost COMMIT costs time
		if status.Code(err) != codes.Unavailable {
			if err != nil {
				t.Errorf("reboot of %s: %v", id, err)
			}
			return op.GetOperationId()
		}
	}
}
