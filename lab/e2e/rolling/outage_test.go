package rolling

import (
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const (
	// mayMiss is how many heartbeats of a second an agent may miss: a busy processor makes it late.
	mayMiss = 8
	// outageTime is several times as long.
	outageTime = 20 * time.Second
)

// reach is what a machine shows of its agent.
type reach struct {
	reachable bool
	since     time.Time
	node      baremetalv1.NodeState
	nodeSince time.Time
}

func reachOf(m *baremetalv1.Machine) reach {
	c, s := rig.Condition(m, "Reachable"), m.GetStatus()
	return reach{c.GetStatus(), c.GetLastTransition().AsTime(), s.GetNodeState(), s.GetNodeStateChangedAt().AsTime()}
}

// TestAnOutageOfAControllerMovesNoMachine: a controller that was killed, or stood still, for several times as long as
// agents may be silent reports no change of any of them. A change would show in the times, however soon it was taken
// back.
func TestAnOutageOfAControllerMovesNoMachine(t *testing.T) {
	for name, away := range map[string]func(c *harness.ControllerProcess, during func()){
		"killed": func(c *harness.ControllerProcess, during func()) {
			c.Process.Kill()
			during()
			c.Start("")
		},
		"stands still": func(c *harness.ControllerProcess, during func()) {
			c.Process.Stand()
			during()
			c.Process.Continue()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.LetMiss(mayMiss)
			c.Start("")
			var machines []*harness.Machine
			for range 4 {
				m := c.NewMachine(t, harness.MachineOptions{})
				m.WaitConnected()
				machines = append(machines, m)
			}
			before := map[string]reach{}
			for _, m := range machines {
				testkit.Eventually(t, rig.Soon, func() bool {
					before[m.ID] = reachOf(c.Machine(m.ID))
					return before[m.ID].reachable && before[m.ID].node == baremetalv1.NodeState_NODE_STATE_ACTIVE
				}, "%s is not active", m.ID)
			}
			summary := func() *baremetalv1.FleetSummary {
				return harness.Must(t, c.Machines().GetFleetSummary, &baremetalv1.GetFleetSummaryRequest{})
			}
			lost := machines[0]
			begun := time.Now()
			away(c, func() {
				lost.Isolate()
				<-time.After(outageTime)
			})
			testkit.Eventually(t, rig.Soon, func() bool {
				s := summary()
				return s.GetConnectedAgents() == 3 && s.GetAgentsAwaited() == 1
			}, "it does not say that it waits for an agent: %v", summary())
			if since := summary().GetNotListeningSince().AsTime(); since.Before(begun.Add(-5*time.Second)) ||
				since.After(begun.Add(outageTime)) {
				t.Errorf("not listening since %v; the outage began at %v", since, begun)
			}
			lost.Rejoin()
			testkit.Eventually(t, rig.Soon, func() bool {
				s := summary()
				return s.GetConnectedAgents() == 4 && s.GetNotListeningSince() == nil && s.GetAgentsAwaited() == 0
			}, "it does not see that all agents are back: %v", summary())
			for _, m := range machines {
				if got := reachOf(c.Machine(m.ID)); got != before[m.ID] {
					t.Errorf("%s: %+v, before the outage %+v", m.ID, got, before[m.ID])
				}
			}
			// A freeze finds all agents where they are.
			harness.Must(t, baremetalv1.NewBudgetServiceClient(c.Conn()).FreezeFleet,
				&baremetalv1.FreezeFleetRequest{Comment: "a look at the racks"})
			info := harness.Must(t, c.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
			if info.GetFrozenSince() == nil || info.GetAgentsNotSeen() != 0 {
				t.Errorf("%d agents have not been seen since the freeze of %v; all are connected", info.GetAgentsNotSeen(),
					info.GetFrozenSince())
			}
		})
	}
}
