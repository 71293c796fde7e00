package e2e

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/relay"
)

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
					operations[i] = rig.Reboot(t, c.Client, id(i), fmt.Sprint("r-", r), 60).GetOperationId()
				})
				for _, o := range operations {
					rig.Ended(t, c.Wait(o, rig.Soon), rig.Succeeded, "")
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
