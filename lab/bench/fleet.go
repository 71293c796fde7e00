package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
)

// fleet is many whole agents in this process, on simulated machines that reboot at once.
type fleet struct {
	machines []string
	receipts *receipts
	ctx      context.Context //nolint:containedctx // ends with the first agent that does
	cancel   context.CancelFunc
	group    *task.Group
}

// startFleet registers machines, starts their agents and waits for every session.
func (g *rig) startFleet(ctx context.Context) (*fleet, error) {
	say("fleet: %d simulated machines", g.o.agents)
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: g.path("world"), NoSync: true})
	if err != nil {
		return nil, err
	}
	bundles, err := g.register(ctx, "load", g.o.agents)
	if err != nil {
		return nil, err
	}
	f := &fleet{receipts: newReceipts()}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	f.group, f.ctx = task.New(runCtx)
	var connected sync.WaitGroup
	connected.Add(len(bundles))
	for machine, bundle := range bundles {
		f.machines = append(f.machines, machine)
		first := sync.OnceFunc(connected.Done)
		dir := filepath.Join(g.path("agents"), machine)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, errors.Join(err, f.stop())
		}
		a := agent.New(agent.Config{
			StateDir: dir, InMemory: true, Host: agent.SimulatedHost(world, machine, 0), Bundle: bundle,
			Log: slog.New(f.receipts), NoInventory: true, Quiet: true, Connected: first,
		})
		f.group.Go(machine, a.Run)
	}
	if err := await(ctx, f.ctx, connected.Wait); err != nil {
		return nil, errors.Join(fmt.Errorf("connect agents: %w", err), f.stop())
	}
	return f, g.maintain(ctx, f.machines)
}

// await waits for done until either context ends.
func await(ctx, other context.Context, done func()) error {
	ended := make(chan struct{})
	task.Background("await", func() {
		done()
		close(ended)
	})
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-other.Done():
		return context.Cause(other)
	}
}

func (f *fleet) stop() error {
	f.cancel()
	return f.group.Wait()
}

// register makes machines and a bootstrap token for each.
func (g *rig) register(ctx context.Context, prefix string, n int) (map[string]string, error) {
	var mu sync.Mutex
	bundles := map[string]string{}
	admin := baremetalv1.NewAdminServiceClient(g.conn)
	err := parallel(ctx, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("%s-%04d", prefix, i+1)
		if _, err := g.machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{
			Machine: &baremetalv1.Machine{MachineId: name},
		}); err != nil {
			return fmt.Errorf("register %s: %w", name, err)
		}
		t, err := admin.IssueBootstrapToken(ctx, &baremetalv1.IssueBootstrapTokenRequest{MachineId: name})
		if err != nil {
			return fmt.Errorf("issue a token for %s: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		bundles[name] = t.GetBundle()
		return nil
	})
	return bundles, err
}

// maintain puts the machines into the phase MAINTENANCE, in which they may be rebooted.
func (g *rig) maintain(ctx context.Context, machines []string) error {
	err := parallel(ctx, len(machines), func(ctx context.Context, i int) error {
		_, err := g.machines().EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{
			MachineId: machines[i], RequestId: ids.New(ids.Session),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("enter maintenance: %w", err)
	}
	for _, name := range machines {
		for {
			m, err := g.machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: name})
			if err != nil {
				return err
			}
			if m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE && m.GetStatus().GetActiveOperationId() == "" {
				break
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// width is how many calls of the preparations go on at once.
const width = 16

// parallel runs fn for 0 to n-1.
func parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	next := make(chan int)
	group, _ := task.New(ctx)
	for range min(width, n) {
		group.Go("worker", func(ctx context.Context) error {
			for i := range next {
				if err := fn(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go("feed", func(ctx context.Context) error {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}

// startAgentProcess starts the agent whose memory is read: a process of its own that is never given anything to do.
func (g *rig) startAgentProcess(ctx context.Context) (*process, error) {
	bundles, err := g.register(ctx, "lone", 1)
	if err != nil {
		return nil, err
	}
	token := g.path("lone-token")
	for _, bundle := range bundles {
		if err := os.WriteFile(token, []byte(bundle), 0o600); err != nil {
			return nil, err
		}
	}
	return startProcess(g.dir, "agent", filepath.Join(g.o.bin, "ingot-agent"), "run", "--host", "sim",
		"--state-dir", g.path("lone"), "--sim-dir", g.path("lone-world"), "--token-file", token)
}
