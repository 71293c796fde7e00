package reboot_test

import (
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/reboot"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/internal/clock"
)

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, reboot.Declaration, func(t *testing.T) executortest.World {
		dir := t.TempDir()
		p, err := fake.New(fake.Config{Dir: dir, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		return executortest.World{
			Spec: &fleetv1.CommandSpec{CommandId: "c-1", OperationId: "op-1", TargetId: "m-1",
				Action: &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{Mode: "graceful"}}},
			Executor: func() executor.Executor {
				return reboot.New(reboot.Config{
					Host:  provider.AsHost(p, provider.Target{MachineID: "m-1"}),
					Clock: clock.Real(), Settle: 100 * time.Millisecond, Poll: time.Millisecond,
				})
			},
			Effects: func() int { return reboots(t, dir) },
		}
	})
}

func reboots(t *testing.T, dir string) (n int) {
	t.Helper()
	records, err := sim.ReadJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range sim.CountByCommand(records, sim.KindReboot) {
		n += of
	}
	return n
}
