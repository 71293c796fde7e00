package e2e

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
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

func TestADatabaseThatGoesAwayInMidFlight(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:late=2s"})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := rig.Reboot(t, c.Client, m.ID, "r", 60)
	testkit.Eventually(t, rig.Soon, func() bool { return len(m.Journal()) > 0 }, "the reboot is not asked for")
	c.Database().Block()
	// The reboot happens meanwhile, and the agent has nobody to tell.
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
