package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// again is the time in which an operation must move once a controller is up, on a machine that is full of tests.
const again = 15 * time.Second

// kindFor is a kind of operation that passes the failpoint.
func kindFor(point string, turn int) kind {
	name := []string{"reboot-graceful", "reimage", "netboot-now", "reconfigure"}[turn%4]
	if strings.Contains(point, "reconfig") {
		name = "reconfigure"
	}
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// TestKill9OfAgents kills agents, as processes, at each of their failpoints, and starts them again.
func TestKill9OfAgents(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	points := append(harness.AgentPoints(), "agent.after-enroll-key", "agent.after-enroll-answer")
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := c.NewMachine(t, harness.MachineOptions{Stopped: true, Site: i%3 == 2, Delay: 50 * time.Millisecond})
			killed := m.RunAgentProcess(point + "=kill@1")
			m.WaitConnected()
			rig.Maintenance(t, c.Client, m.ID)
			op, err := kindFor(point, i).start(t, c.Client, m.ID, "work", rig.PatientTime)
			if err != nil {
				t.Fatal(err)
			}
			got := c.Wait(op.GetOperationId(), endLimit)
			select {
			case <-killed:
			case <-time.After(rig.Soon):
				t.Fatalf("the agent was not killed; operation %v", got)
			}
			h := m.WaitQuiet(rig.Soon)
			rig.Clean(t, h)
			t.Logf("%s: %s %s", got.GetType(), got.GetPhase(), got.GetError().GetCode())
		})
	}
}

// TestKill9OfControllers kills controllers, as processes, at each of their failpoints, at the first and at a later
// pass.
func TestKill9OfControllers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var worst time.Duration
	runs := 0
	t.Run("at", func(t *testing.T) {
		for i, point := range harness.ControllerPoints() {
			for _, nth := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s@%d", point, nth), func(t *testing.T) {
					t.Parallel()
					took := killController(t, kindFor(point, i+nth), point, nth)
					mu.Lock()
					defer mu.Unlock()
					worst = max(worst, took)
					runs++
				})
			}
		}
	})
	t.Logf("%d controllers killed; the slowest operation moved %v after the next one was up", runs,
		worst.Round(time.Millisecond))
}

// waitForJobs waits until no job of an operation is left: the next controller would work it, and die of that before the
// agent has a session.
func waitForJobs(t *testing.T, url string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background()) //nolint:errcheck // nothing was written
	testkit.Eventually(t, time.Minute, func() bool {
		var left int
		err := db.QueryRow(t.Context(),
			"SELECT count(*) FROM river_job WHERE kind = 'operation' AND finalized_at IS NULL").Scan(&left)
		return err == nil && left == 0
	}, "a job of a finished operation is left")
}

func killController(t *testing.T, k kind, point string, nth int) time.Duration {
	url := testkit.Database(t)
	c := harness.NewControllerProcessOn(t, url)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Site: nth == 3, Delay: 50 * time.Millisecond})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	waitForJobs(t, url)
	c.Process.Terminate()
	c.Start(fmt.Sprintf("%s=kill@%d", point, nth))
	m.WaitConnected()
	// The controller may die before it answers: the call is repeated until there is another.
	var wg sync.WaitGroup
	var op *baremetalv1.Operation
	var err error
	wg.Add(1)
	go func() {
		defer wg.Done()
		op, err = k.start(t, c.Client, m.ID, "work", rig.PatientTime)
	}()
	select {
	case <-c.Process.Gone():
	case <-time.After(20 * time.Second):
		wg.Wait()
		t.Logf("the operation never passes %s@%d: %v", point, nth, c.Operation(op.GetOperationId()).GetPhase())
		c.Process.Kill()
	}
	if !c.Process.Killed() {
		t.Fatal("the controller did not die")
	}
	up := c.Start("")
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	before := c.Operation(op.GetOperationId())
	if !harness.Ended(before) {
		c.WaitFor(op.GetOperationId(), "moving", func(o *baremetalv1.Operation) bool {
			return o.GetVersion() != before.GetVersion() || harness.Ended(o)
		})
	}
	took := time.Since(up)
	if took > again {
		t.Errorf("the operation moved %v after the controller was up", took)
	}
	got := c.Wait(op.GetOperationId(), endLimit)
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if got.GetPhase() != rig.Succeeded {
		t.Errorf("a kill -9 of the controller makes a healthy machine's operation end as %v", got)
	}
	return took
}

func TestKill9OfAControllerThatWaitsForAReboot(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:late=1s"})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := rig.Reboot(t, c.Client, m.ID, "r", 60)
	c.WaitCommand(m.ID, "granted", harness.InState("GRANTED"))
	before := c.Operation(op.GetOperationId()).GetVersion()
	c.Process.Kill()
	// The machine reboots while the controller is down.
	testkit.Eventually(t, rig.Soon, func() bool { return len(m.Journal()) > 1 }, "no reboot")
	up := c.Start("")
	c.WaitFor(op.GetOperationId(), "moving", func(o *baremetalv1.Operation) bool { return o.GetVersion() != before })
	took := time.Since(up)
	t.Logf("the operation moved %v after the controller was up", took.Round(time.Millisecond))
	if took > again {
		t.Errorf("that is more than %v", again)
	}
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// A controller that is killed while it makes its CA comes up with a whole one.
func TestKill9WhileTheCAIsMade(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"ca.half-made", "ca.before-rename", "ca.after-rename"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.Launch(point + "=kill@1")
			<-c.Process.Gone()
			if !c.Process.Killed() {
				t.Fatal("the controller did not die")
			}
			c.Start("")
			m := c.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
		})
	}
}

func TestKill9WhileAnAgentEnrols(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"enroll.after-sign", "enroll.after-commit"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.Start(point + "=kill@1")
			m := c.NewMachine(t, harness.MachineOptions{})
			<-c.Process.Gone()
			if !c.Process.Killed() {
				t.Fatal("the controller did not die")
			}
			c.Start("")
			m.WaitConnected()
			a := harness.Must(t, c.Admin().GetAgent, &baremetalv1.GetAgentRequest{AgentId: m.Identity().AgentID})
			if len(a.GetCerts()) != 1 {
				t.Errorf("%d certificates", len(a.GetCerts()))
			}
		})
	}
}

func TestSIGHUPSwapsTokensWithStreamsOpen(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	dials := m.Dials()
	watch, err := c.Operations().WatchOperations(t.Context(), &baremetalv1.WatchOperationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Header(); err != nil {
		t.Fatal(err)
	}
	secret, err := auth.AddToken(c.TokensFile(), "other", access.ScopeOperate)
	if err != nil {
		t.Fatal(err)
	}
	other := c.WithToken(secret)
	c.Process.Hangup()
	testkit.Eventually(t, rig.Soon, func() bool {
		_, err := harness.Call(t, other.Machines().GetMachine, &baremetalv1.GetMachineRequest{MachineId: m.ID})
		return err == nil
	}, "the new token does not work")
	rig.Maintenance(t, other, m.ID)
	watchEnd(t, watch)
	if m.Dials() != dials {
		t.Error("the agent's session was dropped")
	}
}
