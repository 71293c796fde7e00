package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
)

// received is a command with its record in the memory.
type received struct {
	command *fleetv1.Command
	spec    *fleetv1.CommandSpec
	bad     error
	stored  state.Command
	known   bool
	err     error
}

// receive makes commands durable together, and then takes them in one after the other.
func (d *Dispatcher) receive(ctx context.Context, commands ...*fleetv1.Command) error {
	list := make([]*received, len(commands))
	for i, c := range commands {
		list[i] = &received{command: c}
	}
	err := together(list, func(r *received) error {
		c := r.command
		r.spec, r.bad = parse(c)
		r.stored, r.known, r.err = d.cfg.Store.Receive(ctx, state.Command{
			ID: c.GetCommandId(), TargetID: r.spec.GetTargetId(), Spec: c.GetSpec(), Digest: c.GetDigest(),
			BootID: d.cfg.BootID, ReceivedAt: d.cfg.Clock.Now(),
		})
		return nil
	})
	for _, r := range list {
		err = errors.Join(err, d.takeIn(ctx, r))
	}
	return err
}

// takeIn acknowledges a command that is durable, and begins with it.
func (d *Dispatcher) takeIn(ctx context.Context, r *received) error {
	if errors.Is(r.err, state.ErrStorageFull) {
		d.park(r.command, r.err)
		return nil
	}
	if r.err != nil {
		return r.err
	}
	if r.known {
		return d.repeat(ctx, r.command, r.stored)
	}
	if err := afterReceived.HitCtx(ctx); err != nil {
		return err
	}
	if err := d.ack(ctx, r.stored); err != nil {
		return err
	}
	d.cfg.Log.Info("command received", "command_id", r.stored.ID, "operation_id", r.spec.GetOperationId(),
		"machine_id", r.spec.GetTargetId(), "step", r.spec.GetStep())
	d.open(r.stored, r.spec, r.bad)
	return nil
}

// park keeps a command that could not be made durable. It is not acknowledged.
func (d *Dispatcher) park(c *fleetv1.Command, err error) {
	d.cfg.Log.Error("command not accepted", "command_id", c.GetCommandId(),
		"reason", baremetalv1.Reason_AGENT_STORAGE_FULL.String(), "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parked[c.GetCommandId()] = c
}

// unpark tries parked commands again.
func (d *Dispatcher) unpark(ctx context.Context) error {
	d.mu.Lock()
	var parked map[string]*fleetv1.Command
	if len(d.parked) > 0 {
		parked, d.parked = d.parked, map[string]*fleetv1.Command{}
	}
	d.mu.Unlock()
	for _, c := range parked {
		if err := d.receive(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// repeat answers a command that is known already from its record.
func (d *Dispatcher) repeat(ctx context.Context, c *fleetv1.Command, stored state.Command) error {
	if !bytes.Equal(c.GetDigest(), stored.Digest) {
		d.cfg.Log.Error("a known command id came with another content; it is answered as before", "command_id", stored.ID)
	}
	if err := d.ack(ctx, stored); err != nil {
		return err
	}
	if stored.State != state.Done {
		return nil
	}
	r, err := decodeResult(stored)
	if err != nil {
		return err
	}
	d.send(resultMessage(r))
	return nil
}

func (d *Dispatcher) ack(ctx context.Context, c state.Command) error {
	if err := beforeAck.HitCtx(ctx); err != nil {
		return err
	}
	d.send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Ack{
		Ack: &fleetv1.CommandAck{CommandId: c.ID, State: c.State},
	}})
	return nil
}

// recover takes over what the store holds: started commands first, so that they come first in their lanes.
func (d *Dispatcher) recover(ctx context.Context) error {
	if err := d.evict(ctx); err != nil {
		return err
	}
	var err error
	if d.stateID, err = d.cfg.Store.StateID(ctx); err != nil {
		return err
	}
	list, err := d.cfg.Store.Unsettled(ctx)
	if err != nil {
		return err
	}
	for _, want := range []string{state.Done, state.Started, state.Received} {
		for _, c := range list {
			if c.State != want {
				continue
			}
			if err := d.takeOver(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Dispatcher) takeOver(c state.Command) error {
	if c.State == state.Done {
		r, err := decodeResult(c)
		if err != nil {
			return err
		}
		d.keep(r)
		return nil
	}
	spec, bad := parse(&fleetv1.Command{CommandId: c.ID, Spec: c.Spec, Digest: c.Digest})
	d.open(c, spec, bad)
	return nil
}

// open starts the life of a command that is not done.
func (d *Dispatcher) open(c state.Command, spec *fleetv1.CommandSpec, bad error) {
	j := newJob(c, spec)
	j.turn, j.leave = d.lanes.enter(c.TargetID)
	d.mu.Lock()
	d.jobs[c.ID] = j
	d.mu.Unlock()
	d.group.Go("command "+c.ID, func(ctx context.Context) error {
		err := d.run(ctx, j, bad)
		d.mu.Lock()
		delete(d.jobs, c.ID)
		d.mu.Unlock()
		return err
	})
}

func decodeResult(c state.Command) (*fleetv1.CommandResult, error) {
	r := &fleetv1.CommandResult{}
	if err := proto.Unmarshal(c.Result, r); err != nil {
		return nil, fmt.Errorf("decode stored result of command %s: %w", c.ID, err)
	}
	return r, nil
}

func malformed(err error) executor.Result {
	return executor.Refused(baremetalv1.Reason_INVALID_FIELD, "malformed command: %v", err)
}
