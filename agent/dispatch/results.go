package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
)

// finish makes the result durable, however long that takes, and then sends it.
func (d *Dispatcher) finish(ctx context.Context, j *job, r executor.Result) error {
	if err := beforeResultStored.HitCtx(ctx); err != nil {
		return err
	}
	msg := d.wire(j.id, d.stateID, r)
	b, err := proto.Marshal(msg)
	if err != nil {
		return fmt.Errorf("encode result of command %s: %w", j.id, err)
	}
	if err := d.storeResult(ctx, j.id, b); err != nil {
		return err
	}
	d.traceCommand(j, r)
	d.cfg.Log.Info("command done", "command_id", j.id, "operation_id", j.spec.GetOperationId(),
		"machine_id", j.spec.GetTargetId(), "outcome", r.Outcome.String(), "reason", msg.GetReason(), "message", r.Message)
	if err := afterResultStored.HitCtx(ctx); err != nil {
		return err
	}
	d.keep(msg)
	if err := beforeResultSent.HitCtx(ctx); err != nil {
		return err
	}
	d.send(resultMessage(msg))
	return nil
}

// storeResult waits for room on the disk: the effect has happened, and only this process knows.
func (d *Dispatcher) storeResult(ctx context.Context, id string, result []byte) error {
	for {
		err := d.cfg.Store.Finish(ctx, id, result, d.cfg.Clock.Now())
		if !errors.Is(err, state.ErrStorageFull) {
			return err
		}
		d.cfg.Log.Error("result waits for disk space", "command_id", id, "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.cfg.Clock.After(storageRetry):
		}
	}
}

const storageRetry = time.Second

// keep remembers a result to be sent until it is acknowledged.
func (d *Dispatcher) keep(r *fleetv1.CommandResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unacked[r.GetCommandId()] = &unacked{result: r}
}

// unacked is a result that is not settled. One that was acknowledged in this session is not repeated in it.
type unacked struct {
	result *fleetv1.CommandResult
	quiet  bool
}

// resultAck stops the repeats. Only a settled command may ever be forgotten; one that is not is sent again in
// the next session.
func (d *Dispatcher) resultAck(ctx context.Context, a *fleetv1.ResultAck) error {
	if !a.GetSettled() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if u := d.unacked[a.GetCommandId()]; u != nil {
			u.quiet = true
		}
		return nil
	}
	err := d.cfg.Store.Settle(ctx, a.GetCommandId())
	if errors.Is(err, state.ErrStorageFull) {
		return nil // the result is sent again, and acknowledged again
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.unacked, a.GetCommandId())
	d.mu.Unlock()
	return afterResultAck.HitCtx(ctx)
}

// upkeep sends results again, tries parked commands again and evicts once a day.
func (d *Dispatcher) upkeep(ctx context.Context) error {
	resend := d.cfg.Clock.NewTicker(d.cfg.ResendEvery)
	defer resend.Stop()
	daily := d.cfg.Clock.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-resend.C():
			d.resend()
			if err := d.unpark(ctx); err != nil {
				return err
			}
		case <-daily.C():
			if err := d.evict(ctx); err != nil {
				return err
			}
		}
	}
}

func (d *Dispatcher) resend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link == nil {
		return
	}
	for _, u := range d.unacked {
		if !u.quiet {
			d.link.Send(resultMessage(u.result))
		}
	}
}

func (d *Dispatcher) evict(ctx context.Context) error {
	n, err := d.cfg.Store.Evict(ctx, d.cfg.Clock.Now())
	if errors.Is(err, state.ErrStorageFull) {
		d.cfg.Log.Error("old commands not evicted", "error", err)
		return nil
	}
	if n > 0 {
		d.cfg.Log.Info("evicted settled commands", "count", n)
	}
	return err
}

func resultMessage(r *fleetv1.CommandResult) *fleetv1.AgentMessage {
	return &fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Result{Result: r}}
}
