package agent_test

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
)

// rig is one agent on a simulated machine with its own controller.
type rig struct {
	t     *testing.T
	c     *agenttest.Controller
	cfg   agent.Config
	world *sim.World
	dir   string // of the world
	fp    *failpoint.Scope
	stop  context.CancelFunc
	ended chan error
	// blockNew makes new connections fail; open ones go on.
	blockNew atomic.Bool
}

func newRig(t *testing.T, hooks agenttest.Hooks, script string) *rig {
	t.Helper()
	return newRigOn(t, agenttest.New(t, hooks), script)
}

func newRigOn(t *testing.T, c *agenttest.Controller, script string) *rig {
	t.Helper()
	r := &rig{t: t, c: c, dir: t.TempDir(), fp: failpoint.NewScope()}
	var err error
	r.world, err = sim.OpenWorld(sim.WorldConfig{Dir: r.dir, Script: script, Delay: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = agent.Config{
		StateDir:     t.TempDir(),
		RunDir:       t.TempDir(),
		Host:         agent.SimulatedHost(r.world, c.MachineID, 20*time.Millisecond),
		Bundle:       c.Bundle(),
		Version:      "test",
		Failpoints:   r.fp,
		Log:          quietLog(),
		RebootSettle: 300 * time.Millisecond,
		RebootPoll:   10 * time.Millisecond,
		ResendEvery:  50 * time.Millisecond,
		GrantWait:    500 * time.Millisecond,
		Dial:         r.dial,
	}
	return r
}

func quietLog() *slog.Logger {
	level := slog.LevelError + 4
	if os.Getenv("INGOT_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// start runs the agent; the test's end stops it.
func (r *rig) start() {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop, r.ended = stop, make(chan error, 1)
	ended := r.ended
	a := agent.New(r.cfg)
	gone := make(chan struct{})
	task.Background("agent under test", func() {
		defer close(gone)
		ended <- a.Run(ctx)
	})
	r.t.Cleanup(func() {
		stop()
		<-gone
	})
}

// end waits for the agent to end and returns its error.
func (r *rig) end() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.stop()
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("the agent does not end")
	}
	return nil
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	if err := r.end(); err != nil {
		r.t.Fatalf("the agent ended with %v", err)
	}
	r.start()
}

// effects counts what the command did to the world.
func (r *rig) effects(id string, kinds ...sim.Kind) int {
	r.t.Helper()
	if err := r.world.Settle(); err != nil {
		r.t.Fatal(err)
	}
	records, err := sim.ReadJournal(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return sim.CountByCommand(records, kinds...)[id]
}

func rebootSpec() *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{
		TimeoutMs: 5000, Action: &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{Mode: "graceful"}},
	}
}

func wantOutcome(t *testing.T, r *fleetv1.CommandResult, want fleetv1.CommandResult_Outcome, reason string) {
	t.Helper()
	if r.GetOutcome() != want || r.GetReason() != reason {
		t.Fatalf("result %v %s (%s), want %v %s", r.GetOutcome(), r.GetReason(), r.GetMessage(), want, reason)
	}
}

func TestRebootIsDoneOnAnotherBootID(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	id := r.c.Order(rebootSpec())
	got := r.c.WaitResult(id)
	wantOutcome(t, got, fleetv1.CommandResult_SUCCEEDED, "")
	before, after := got.GetEvidence()[evidence.BootIDBefore], got.GetEvidence()[evidence.BootIDAfter]
	if before == "" || after == "" || before == after {
		t.Fatalf("evidence %v", got.GetEvidence())
	}
	if r.c.Session().Hello.GetBootId() != after || !got.GetSimulated() {
		t.Fatalf("session has boot id %s, evidence %s, simulated %v", r.c.Session().Hello.GetBootId(), after,
			got.GetSimulated())
	}
	if n := r.effects(id); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
}
