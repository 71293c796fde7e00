package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// mark remembers how far everything has been read.
func (c *Trial) mark() error {
	for _, p := range c.Programs() {
		info, err := p.Log.Stat()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		p.Read = info.Size()
	}
	c.runCount++
	info, err := os.Stat(c.Path("effects"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		c.effects = info.Size()
	}
	return err
}

// collect gathers the history of a cell at rest.
func (r *attempt) collect(ctx context.Context) (check.History, error) {
	c := r.c
	h := check.History{Header: check.Header{
		Seed: r.p.Seed, Planted: c.o.Planted, Controllers: len(c.controllers), Agents: len(c.agents), At: time.Now(),
		Begun: r.begun, Steppable: c.steppable,
	}, Calls: r.calls, Faults: append(r.faults, c.takeDeaths(r.begun)...)}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, id := range c.machineIDs() {
		if err := r.collectMachine(ctx, id, &h); err != nil {
			return h, err
		}
	}
	r.collectEvents(&h)
	if err := c.collectEffects(&h); err != nil {
		return h, err
	}
	if err := errors.Join(c.collectSessions(&h), r.collectLogs(ctx, &h)); err != nil {
		return h, err
	}
	r.collectSightings(ctx, &h)
	// A controller that is crowded may want to be asked again.
	var err error
	late := program.Until(ctx, c.o.Quiet, "the check of the audit log", func() bool {
		h.Verdicts, err = program.Verdicts(ctx, c.controllers[0].machines(), restLimit)
		return err == nil
	})
	return h, errors.Join(late, err)
}

// readerLimit is how long the reader of the cursor may be behind.
const readerLimit = 3 * time.Minute

// collectSightings reads every machine, as often as it takes for the reader of the cursor to have just these versions:
// a machine goes on changing with the sessions of its agent. What the reader never gets to see is found by the check.
func (r *attempt) collectSightings(ctx context.Context, h *check.History) {
	var seen []sighted
	err := program.Until(ctx, readerLimit, "the reader", func() bool {
		h.Machines = nil
		versions := map[string]int64{}
		for _, id := range r.c.machineIDs() {
			m, err := r.c.machine(ctx, id)
			st, werr := r.c.world.State(id)
			if err != nil || werr != nil {
				return false
			}
			versions[id] = m.GetVersion()
			h.Machines = append(h.Machines, check.Machine{Machine: m, Pending: len(st.Pending)})
		}
		var ok bool
		seen, ok = r.c.follow.take(versions)
		return ok
	})
	if err != nil {
		seen = r.c.follow.takeAll()
	}
	for _, s := range seen {
		h.Sightings = append(h.Sightings, check.Sighting{
			At: s.at.Sub(r.begun), Machine: s.machine.GetMachineId(), Version: s.machine.GetVersion(),
			Active: s.machine.GetStatus().GetActiveOperationId(),
		})
	}
}

// collectMachine reads a machine's operations of this run, and their commands. A controller that is crowded may want to
// be asked again.
func (r *attempt) collectMachine(ctx context.Context, id string, h *check.History) (err error) {
	late := program.Until(ctx, r.c.o.Quiet, "the operations of "+id, func() bool {
		var operations []*baremetalv1.Operation
		var commands []*baremetalv1.Command
		if operations, commands, err = r.readMachine(ctx, id); err != nil {
			return false
		}
		h.Operations, h.Commands = append(h.Operations, operations...), append(h.Commands, commands...)
		return true
	})
	return errors.Join(late, err)
}

func (r *attempt) readMachine(
	ctx context.Context, id string,
) (operations []*baremetalv1.Operation, all []*baremetalv1.Command, err error) {
	p := r.c.controllers[0]
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	list, err := p.operations().ListOperations(ctx, &baremetalv1.ListOperationsRequest{Filter: "machine_id=" + id,
		PageSize: 50})
	if err != nil {
		return nil, nil, fmt.Errorf("list operations: %w", err)
	}
	for _, o := range list.GetOperations() {
		if !r.ours(o) && !r.ofRollout(o) {
			continue
		}
		operations = append(operations, o)
		commands, err := p.admin().ListCommands(ctx, &baremetalv1.ListCommandsRequest{OperationId: o.GetOperationId()})
		if err != nil {
			return nil, nil, fmt.Errorf("list commands: %w", err)
		}
		all = append(all, commands.GetCommands()...)
	}
	return operations, all, nil
}

// logsSettle is how long an agent's events may be on their way once it is connected.
const logsSettle = time.Minute

// collectLogs waits for log lines that are still on their way. Those that never come are found by the check.
func (r *attempt) collectLogs(ctx context.Context, h *check.History) (err error) {
	late := program.Until(ctx, logsSettle, "logs", func() bool {
		h.Logs, err = nil, nil
		for _, o := range h.Operations {
			if err = r.c.controllers[0].collectLogs(ctx, o, h); err != nil {
				return false
			}
		}
		return check.LogsComplete(*h)
	})
	if late != nil && ctx.Err() != nil {
		return late
	}
	return err
}

func (p *controllerProgram) collectLogs(ctx context.Context, o *baremetalv1.Operation, h *check.History) error {
	stream, err := p.operations().StreamOperationLogs(ctx,
		&baremetalv1.StreamOperationLogsRequest{OperationId: o.GetOperationId(), NoFollow: true})
	for err == nil {
		var chunk *baremetalv1.LogChunk
		if chunk, err = stream.Recv(); err == nil {
			h.Logs = append(h.Logs, check.LogLine{Operation: o.GetOperationId(), Seq: chunk.GetSeq(),
				Text: string(chunk.GetData())})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read logs: %w", err)
}

func (r *attempt) collectEvents(h *check.History) {
	ours := map[string]bool{}
	for _, o := range h.Operations {
		ours[o.GetOperationId()] = true
	}
	events, times := r.c.watch.take()
	for i, e := range events {
		if s := e.GetSnapshot(); ours[s.GetOperationId()] {
			h.Events = append(h.Events, check.Event{
				At: times[i].Sub(r.begun), Operation: s.GetOperationId(), Seq: e.GetSeq(), Kind: e.GetKind(),
				Phase: s.GetPhase().String(),
			})
		}
	}
}

// readEffects reads the record from a place on.
func (c *Trial) readEffects(from int64) (out []sim.EffectRecord, err error) {
	f, err := os.Open(c.Path("effects"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	dec := json.NewDecoder(f)
	for {
		var e sim.EffectRecord
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read the record: %w", err)
		}
		out = append(out, e)
	}
}

// happened reports whether a command had an effect.
func happened(effects []sim.EffectRecord, command string) bool {
	return sim.CountByCommand(effects)[command] > 0
}

// collectEffects takes those of this run, and older ones of the same commands.
func (c *Trial) collectEffects(h *check.History) error {
	now, err := c.readEffects(c.effects)
	if err != nil {
		return err
	}
	all, err := c.readEffects(0)
	if err != nil {
		return err
	}
	again := map[string]bool{}
	for _, e := range now {
		again[e.CommandID] = true
	}
	for _, e := range all {
		if again[e.CommandID] {
			h.Effects = append(h.Effects, e)
		}
	}
	return nil
}

// collectSessions reads what the logs say of sessions since the mark, and which failpoints have fired.
func (c *Trial) collectSessions(h *check.History) error {
	for _, p := range c.Programs() {
		said, err := p.Said()
		if err != nil {
			return err
		}
		fired := said.Fired
		h.Header.Lost += said.Lost
		h.Sessions, h.Grants = append(h.Sessions, said.Sessions...), append(h.Grants, said.Grants...)
		for i, f := range h.Faults {
			if name, action, armed := strings.Cut(f.Detail, "="); armed && f.Target == p.Name {
				h.Faults[i].Took = slices.Contains(fired, name) || strings.HasPrefix(action, "kill") && ended(h.Faults, p.Name)
			}
		}
	}
	return nil
}

// ended reports whether a program ended by itself, as a failpoint ends it.
func ended(faults []check.Fault, name string) bool {
	return slices.ContainsFunc(faults, func(f check.Fault) bool { return f.Kind == "ended" && f.Target == name })
}

// takeDeaths returns the processes that ended by themselves, as faults: of a failpoint, or of an unknown cause.
func (c *Trial) takeDeaths(since time.Time) []check.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []check.Fault
	for _, d := range c.deaths {
		at := d.at.Sub(since)
		out = append(out, check.Fault{Kind: "ended", Target: d.name, Detail: fmt.Sprint(d.err), Begin: at, End: at})
	}
	c.deaths = nil
	return out
}
