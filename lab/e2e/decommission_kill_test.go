package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestADecommissionWhoseControllerIsKilled kills the controller again and again, at one failpoint after the other. It
// does so from the request of the decommission until its end.
func TestADecommissionWhoseControllerIsKilled(t *testing.T) {
	t.Parallel()
	for _, l := range leavings {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.Start("")
			d := newDeparting(t, c.Client, l, harness.MachineOptions{Delay: 50 * time.Millisecond})
			d.m.WaitConnected()
			began := time.Now()
			c.Process.Terminate()
			deaths := d.killed(c)
			d.leaves()
			t.Logf("%d deaths, at %v; %d resumes; %.1f s", len(deaths), deaths, d.resumes, time.Since(began).Seconds())
			// One death or more for every command, for its grant and its result.
			if len(deaths) < 2*l.commands {
				t.Errorf("only %d deaths", len(deaths))
			}
		})
	}
}

// killed starts one controller after the other, each of which dies at the next failpoint, until the workflow has ended.
// It returns the workflow's stage at each death.
func (d *departing) killed(c *harness.ControllerProcess) (deaths []string) {
	d.Helper()
	points := harness.ControllerPoints()
	begun := make(chan error, 1)
	stage := "the start"
	for i := 0; ; i++ {
		point := points[i%len(points)]
		c.Start(soonDead(point))
		if i == 0 {
			task.Background("begin", func() {
				_, err := d.begin()
				begun <- err
			})
		}
		if !d.outlives(c, &stage) {
			deaths = append(deaths, stage+" "+point)
			continue
		}
		if err := <-begun; err != nil {
			d.Fatal(err)
		}
		c.Process.Terminate()
		c.Start("")
		return deaths
	}
}

// soonDead lets a controller die at a failpoint, and at its third decision if it has not come there.
func soonDead(point string) string {
	if point == committed {
		return committed + "=kill@1"
	}
	return point + "=kill@1;" + committed + "=kill@3"
}

// committed is passed after every decision.
const committed = "store.after-commit"

// outlives waits until the controller dies, or there is nothing left for it to do. stage is where the workflow was seen
// last.
func (d *departing) outlives(c *harness.ControllerProcess, stage *string) bool {
	d.Helper()
	over := false
	testkit.Eventually(d.TB, endLimit, func() bool {
		select {
		case <-c.Process.Gone():
			return true
		default:
		}
		all, err := c.Workflows().ListWorkflows(d.Context(),
			&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + d.m.ID})
		if err != nil || len(all.GetWorkflows()) == 0 {
			return false
		}
		w := all.GetWorkflows()[0]
		*stage = w.GetCurrentStage()
		over = w.GetEndedAt() != nil || rig.FailedState(w)
		return over
	}, "controller neither dies nor ends its work")
	return over
}

// envMatrix asks for every failpoint at every command, instead of two of them.
const envMatrix = "INGOT_LIFE_MATRIX"

// TestADecommissionWhoseAgentIsKilled kills the machine's agent, a process, in each command of each mode.
func TestADecommissionWhoseAgentIsKilled(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	points := slices.DeleteFunc(harness.AgentPoints(), func(p string) bool { return strings.Contains(p, "reconfig") })
	t.Run("at", func(t *testing.T) {
		turn := 0
		for _, l := range leavings {
			for nth := range l.commands {
				for i, point := range points {
					if os.Getenv(envMatrix) == "" && i%len(points) != turn%len(points) && i != (turn+len(points)/2)%len(points) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s@%d", l.name, point, nth+1), func(t *testing.T) {
						t.Parallel()
						agentKilled(t, c, l, point, nth+1)
					})
				}
				turn++
			}
		}
	})
}

func agentKilled(t *testing.T, c *harness.ControllerProcess, l leaving, point string, nth int) {
	d := newDeparting(t, c.Client, l, harness.MachineOptions{Stopped: true, Delay: 50 * time.Millisecond})
	killed := d.m.RunAgentProcess(fmt.Sprintf("%s=kill@%d", point, nth))
	d.m.WaitConnected()
	if _, err := d.begin(); err != nil {
		t.Fatal(err)
	}
	d.leaves()
	select {
	case <-killed:
	case <-time.After(rig.Soon):
		t.Errorf("the agent was never killed\n%v", d.m.History())
	}
	if d.resumes > 0 {
		t.Logf("%d resumes", d.resumes)
	}
}

// TestResumePressedTenTimes: an erasure that failed is tried again once, however often it is asked for.
func TestResumePressedTenTimes(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	d := newDeparting(t, c.Client, leavings[3], harness.MachineOptions{Script: "erase:fail-before@1"})
	d.m.WaitConnected()
	if _, err := d.begin(); err != nil {
		t.Fatal(err)
	}
	d.leaves()
	if ops := c.OperationsOf(d.m.ID); d.resumes != 1 || len(ops) != 3 {
		t.Errorf("%d resumes made these: %v", d.resumes, ops)
	}
}
