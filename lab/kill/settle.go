package main

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// sentinel is a machine that no fault strikes. Its operations end at once: a reader that has seen the end of one has
// seen all earlier commits.
const sentinel = "m-sentinel"

const (
	// calmLimit is how long an answer may take once nothing is broken any more.
	calmLimit = 30 * time.Second
	// lateResult is how long a result may be late once its agent is connected: twice the limit of an attempt.
	lateResult = 2*tryLimit*time.Second + 5*time.Second
)

// settle waits until nothing moves any more.
func (f *fleet) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.o.rest)
	defer cancel()
	for _, p := range f.controllers {
		if err := program.Until(ctx, f.o.rest, p.Name+" to be ready", func() bool { return p.serves(ctx) }); err != nil {
			return err
		}
	}
	if err := program.Until(ctx, f.o.rest, "the agents to connect",
		func() bool { return f.allConnected(ctx) }); err != nil {
		return err
	}
	connected := time.Now()
	// A request whose caller was cut off may be stored after the machines were seen at rest. Its effects show once an
	// operation has ended that was asked for later.
	for round := 0; ; round++ {
		if err := f.atRest(ctx); err != nil {
			return err
		}
		if err := f.sound(ctx, round); err != nil {
			return err
		}
		if busy := f.busy(ctx); busy == "" && time.Since(connected) > lateResult {
			return nil
		}
		program.Rest(ctx, time.Second)
	}
}

// atRest waits until no machine has an operation, an effect to come or an observation that is missing.
func (f *fleet) atRest(ctx context.Context) error {
	busy := ""
	err := program.Until(ctx, f.o.rest, "the machines to come to rest", func() bool {
		busy = f.busy(ctx)
		if busy != "" {
			program.Rest(ctx, time.Second)
		}
		return busy == ""
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, busy)
	}
	return nil
}

// busy returns what still moves; empty for nothing.
func (f *fleet) busy(ctx context.Context) string {
	all, err := f.list(ctx)
	if err != nil {
		return err.Error()
	}
	for _, m := range all {
		if id := m.GetStatus().GetActiveOperationId(); id != "" {
			return "operation " + id + " of " + m.GetMachineId()
		}
		if id := m.GetStatus().GetActiveWorkflowId(); id != "" {
			return "workflow " + id + " of " + m.GetMachineId()
		}
		st, err := f.world.State(m.GetMachineId())
		if err != nil {
			return err.Error()
		}
		if n := len(st.Pending); n > 0 {
			return fmt.Sprintf("%d effects of %s", n, m.GetMachineId())
		}
		for _, c := range m.GetStatus().GetConditions() {
			if c.GetType() == "Reachable" && !c.GetKnown() && c.GetObservedAt() != nil {
				return "what is unknown of " + m.GetMachineId()
			}
		}
	}
	return ""
}

// list returns all machines.
func (f *fleet) list(ctx context.Context) (out []*baremetalv1.Machine, err error) {
	for token := ""; ; {
		call, cancel := context.WithTimeout(ctx, calmLimit)
		page, err := f.controllers[0].machines().ListMachines(call,
			&baremetalv1.ListMachinesRequest{PageSize: 500, PageToken: token})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("list machines: %w", err)
		}
		out = append(out, page.GetMachines()...)
		if token = page.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// sound starts an operation on the sentinel, and waits until the watcher has seen its end.
func (f *fleet) sound(ctx context.Context, round int) error {
	var o *baremetalv1.Operation
	err := program.Until(ctx, f.o.rest, "the sentinel", func() bool {
		call, cancel := context.WithTimeout(ctx, calmLimit)
		defer cancel()
		var err error
		o, err = f.controllers[0].machines().EnterMaintenance(call, &baremetalv1.EnterMaintenanceRequest{
			MachineId: sentinel, RequestId: fmt.Sprintf("sentinel-%d", round)})
		return err == nil
	})
	if err != nil {
		return err
	}
	return program.Until(ctx, f.o.rest, "the watcher to see the sentinel",
		func() bool { return f.events.saw(o.GetOperationId()) })
}
