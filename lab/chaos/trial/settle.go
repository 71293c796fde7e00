package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// sentinel is a machine without an agent. Its operations end at once: what was committed before one of them has come to
// every watcher that has seen its end.
const sentinel = "m-sentinel"

func (c *Trial) register(ctx context.Context, m *baremetalv1.Machine) error {
	_, err := c.controllers[0].machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: m})
	if err != nil {
		return fmt.Errorf("register %s: %w", m.GetMachineId(), err)
	}
	return nil
}

// prepare takes a machine into maintenance.
func (c *Trial) prepare(ctx context.Context, machine string) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_, err := c.controllers[0].machines().EnterMaintenance(ctx,
		&baremetalv1.EnterMaintenanceRequest{MachineId: machine, RequestId: "prepare"})
	if err != nil {
		return fmt.Errorf("enter maintenance: %w", err)
	}
	return program.Until(ctx, settleTime, "maintenance", func() bool {
		m, err := c.machine(ctx, machine)
		return err == nil && m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE &&
			m.GetStatus().GetActiveOperationId() == ""
	})
}

// restLimit is how long an answer may take once nothing is broken any more. Most come in milliseconds; on a busy
// machine they don't, and that is no fault of the cell.
const restLimit = 20 * time.Second

func (c *Trial) connected(ctx context.Context, a *agentProgram) bool {
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	filter := "machine_id=" + a.machine
	if c.o.Wide {
		filter = "site=" + wideSite
	}
	list, err := c.controllers[0].admin().ListAgents(ctx,
		&baremetalv1.ListAgentsRequest{Filter: filter + ",connected=true"})
	return err == nil && len(list.GetAgents()) > 0
}

func (c *Trial) machine(ctx context.Context, id string) (*baremetalv1.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	return c.controllers[0].machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
}

// settle waits until nothing moves any more, and answers what only an operator can.
func (r *attempt) settle(ctx context.Context) error {
	c := r.c
	ctx, cancel := context.WithTimeout(ctx, c.o.Quiet)
	defer cancel()
	for _, p := range c.controllers {
		if err := program.Until(ctx, c.o.Quiet, p.Name+" to be ready", func() bool { return p.serves(ctx) }); err != nil {
			return err
		}
	}
	for _, a := range c.agents {
		if err := program.Until(
			ctx,
			c.o.Quiet,
			a.Name+" to be connected",
			func() bool { return c.connected(ctx, a) },
		); err != nil {
			return err
		}
	}
	stop, err := r.settleWide(ctx)
	if err != nil {
		return err
	}
	defer stop()
	// A request whose caller was cut off may be stored after the machine was seen at rest. What began before the sentinel
	// shows once that has ended.
	for round := 0; ; round++ {
		if err := r.rest(ctx); err != nil {
			return err
		}
		if err := r.sound(ctx, round); err != nil {
			return err
		}
		moving := func(m target) bool {
			_, quiet := r.quiet(ctx, m.id)
			return !quiet
		}
		if !slices.ContainsFunc(c.machines, moving) {
			return nil
		}
	}
}

// quiet reads the machine, and reports whether it has no operation and no pending effect.
func (r *attempt) quiet(ctx context.Context, machine string) (*baremetalv1.Machine, bool) {
	m, err := r.c.machine(ctx, machine)
	st, werr := r.c.world.State(machine)
	return m, err == nil && werr == nil && m.GetStatus().GetActiveOperationId() == "" && len(st.Pending) == 0
}

// lateResult is how long fenced machines may take to lift their fences by themselves: an agent drops a command when its
// time is over twice.
func (r *attempt) lateResult() time.Duration {
	return 2*time.Duration(min(r.limit(), tryLimit))*time.Second + 3*time.Second
}

// rest waits for the operations of all machines to end and their effects to happen. A fence that stays is lifted by
// what the world has seen.
func (r *attempt) rest(ctx context.Context) error {
	var fenced []string
	for _, t := range r.c.machines {
		var m *baremetalv1.Machine
		err := program.Until(ctx, r.c.o.Quiet, t.id+" to come to rest", func() (at bool) {
			m, at = r.quiet(ctx, t.id)
			return at
		})
		if err != nil {
			return fmt.Errorf("%w: operation %s", err, m.GetStatus().GetActiveOperationId())
		}
		if m.GetStatus().GetUnresolvedCommandId() != "" {
			fenced = append(fenced, t.id)
		}
	}
	lifted := func(id string) bool {
		m, at := r.quiet(ctx, id)
		return at && m.GetStatus().GetUnresolvedCommandId() == ""
	}
	err := program.Until(ctx, r.lateResult(), "late results", func() bool {
		fenced = slices.DeleteFunc(fenced, lifted)
		return len(fenced) == 0
	})
	if err == nil {
		return nil
	}
	for _, id := range fenced {
		if err := r.c.liftFence(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *Trial) liftFence(ctx context.Context, machine string) error {
	return program.Until(ctx, c.o.Quiet, "the fence of "+machine+" to be lifted", func() bool {
		m, err := c.machine(ctx, machine)
		if err != nil || m.GetStatus().GetUnresolvedCommandId() == "" {
			return err == nil
		}
		id := m.GetStatus().GetUnresolvedCommandId()
		verdict := "did_not_happen"
		if all, err := c.readEffects(0); err == nil && happened(all, id) {
			verdict = "happened"
		}
		_, err = c.controllers[0].admin().SettleCommand(ctx,
			&baremetalv1.SettleCommandRequest{MachineId: machine, CommandId: id, Verdict: verdict,
				Comment: "the journal of effects"})
		return err == nil || failure.From(err).Reason == "NOTHING_TO_SETTLE"
	})
}

// sound has an operation end on a machine without faults, and waits until the watcher has seen it.
func (r *attempt) sound(ctx context.Context, round int) error {
	request := r.request(fmt.Sprintf("sentinel-%d", round))
	machines := r.c.controllers[0].machines()
	var o *baremetalv1.Operation
	err := program.Until(ctx, r.c.o.Quiet, "the sentinel", func() bool {
		call, cancel := context.WithTimeout(ctx, restLimit)
		defer cancel()
		var err error
		o, err = machines.EnterMaintenance(call, &baremetalv1.EnterMaintenanceRequest{MachineId: sentinel,
			RequestId: request})
		return err == nil
	})
	if err != nil {
		return err
	}
	return program.Until(ctx, r.c.o.Quiet, "the watcher to see the sentinel",
		func() bool { return r.c.watch.seen(o.GetOperationId()) })
}

func (c *Trial) machineIDs() []string {
	out := []string{sentinel}
	for _, m := range c.machines {
		out = append(out, m.id)
	}
	return out
}

// prefix is that of every request of this run.
func (r *attempt) prefix() string { return r.request("") }

// ours reports whether an operation belongs to this run.
func (r *attempt) ours(o *baremetalv1.Operation) bool {
	return strings.HasPrefix(o.GetRequestId(), r.prefix())
}
