package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/kill/judge"
)

// collect gathers the history of a system at rest, and the explanation of every machine and of every operation that did
// not succeed.
func (f *fleet) collect(ctx context.Context, unfinished string) (judge.Record, error) {
	h := judge.Record{Agents: map[string]string{}}
	for id, a := range f.connected(ctx) {
		h.Agents[id] = f.site.Name
		for _, p := range f.hosts {
			if p.machine == a.GetMachineId() && p.machine != "" {
				h.Agents[id] = p.Name
			}
		}
	}
	steps := []func(context.Context, *judge.Record) error{
		f.collectOperations, f.collectMachines, f.collectExplanations, f.collectVerdicts, f.collectEffects, f.collectSessions,
	}
	for _, step := range steps {
		if err := step(ctx, &h); err != nil {
			return h, err
		}
	}
	h.Events = f.events.received()
	f.mu.Lock()
	defer f.mu.Unlock()
	h.Calls, h.Faults, h.Explanations = f.calls, f.faults, append(f.asked, h.Explanations...)
	h.Header = check.Header{Seed: f.o.seed, Controllers: len(f.controllers), Agents: 1 + len(f.hosts), At: time.Now(),
		Begun: f.begun, Steppable: f.o.steppable, Unfinished: unfinished}
	return h, nil
}

func (f *fleet) collectOperations(ctx context.Context, h *judge.Record) error {
	for token := ""; ; {
		call, cancel := context.WithTimeout(ctx, calmLimit)
		page, err := f.controllers[0].operations().ListOperations(call,
			&baremetalv1.ListOperationsRequest{PageSize: 200, PageToken: token})
		cancel()
		if err != nil {
			return fmt.Errorf("list operations: %w", err)
		}
		h.Operations = append(h.Operations, page.GetOperations()...)
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

func (f *fleet) collectMachines(ctx context.Context, h *judge.Record) error {
	all, err := f.list(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		st, err := f.world.State(m.GetMachineId())
		if err != nil {
			return err
		}
		h.Machines = append(h.Machines, check.Machine{Machine: m, Pending: len(st.Pending)})
		h.World = append(h.World, judge.World{Machine: m.GetMachineId(), BootID: st.BootID, On: st.On, Image: st.Disk.Digest})
		if err := f.collectCommands(ctx, m.GetMachineId(), h); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) collectCommands(ctx context.Context, machine string, h *judge.Record) error {
	for token := ""; ; {
		call, cancel := context.WithTimeout(ctx, calmLimit)
		page, err := f.controllers[0].admin().ListCommands(call,
			&baremetalv1.ListCommandsRequest{MachineId: machine, PageToken: token})
		cancel()
		if err != nil {
			return fmt.Errorf("list commands: %w", err)
		}
		h.Commands = append(h.Commands, page.GetCommands()...)
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// collectExplanations asks why for each machine, and for each operation that was not done.
func (f *fleet) collectExplanations(ctx context.Context, h *judge.Record) error {
	machines := map[string]*baremetalv1.Machine{}
	var asks []*baremetalv1.ExplainMachineRequest
	for _, m := range h.Machines {
		machines[m.GetMachineId()] = m.Machine
		asks = append(asks, &baremetalv1.ExplainMachineRequest{MachineId: m.GetMachineId()})
	}
	for _, o := range h.Operations {
		if o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			asks = append(asks, &baremetalv1.ExplainMachineRequest{MachineId: o.GetMachineId(),
				OperationId: o.GetOperationId()})
		}
	}
	for i, r := range asks {
		e, err := f.explain(ctx, i, r)
		if status.Code(err) == codes.Unavailable {
			e, err = f.explain(ctx, i+1, r) // as a client does: a connection may end at any time
		}
		if err != nil {
			return fmt.Errorf("explain %v: %w", r, err)
		}
		h.Explanations = append(h.Explanations, judge.Explanation{At: f.since(), Operation: r.GetOperationId(),
			Machine: machines[r.GetMachineId()], Answer: e})
	}
	return nil
}

// explain asks one of the controllers.
func (f *fleet) explain(
	ctx context.Context, i int, r *baremetalv1.ExplainMachineRequest,
) (*baremetalv1.ExplainMachineResponse, error) {
	call, cancel := context.WithTimeout(ctx, calmLimit)
	defer cancel()
	return f.controllers[i%len(f.controllers)].machines().ExplainMachine(call, r)
}

// collectVerdicts does what "ingot audit verify" does.
func (f *fleet) collectVerdicts(ctx context.Context, h *judge.Record) error {
	verdicts, err := program.Verdicts(ctx, f.controllers[1].machines(), calmLimit)
	h.Verdicts = verdicts
	return err
}

// collectEffects reads what the recorder wrote down.
func (f *fleet) collectEffects(_ context.Context, h *judge.Record) error {
	file, err := os.Open(f.path("effects"))
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	defer file.Close()
	for dec := json.NewDecoder(file); ; {
		var e sim.EffectRecord
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the record: %w", err)
		}
		h.Effects = append(h.Effects, e)
	}
}

// collectSessions reads the sessions and grants in the logs.
func (f *fleet) collectSessions(_ context.Context, h *judge.Record) error {
	for _, p := range f.programs() {
		said, err := p.Said()
		if err != nil {
			return err
		}
		h.Sessions, h.Grants = append(h.Sessions, said.Sessions...), append(h.Grants, said.Grants...)
	}
	return nil
}
