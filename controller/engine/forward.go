package engine

import (
	"context"
	"math/bits"
	"strings"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/commandspec"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// What another controller is asked to do, before the id of the command.
const (
	handSend   = "s:"
	handCancel = "c:"
)

const (
	// handOverDelay lets what belongs to one burst gather.
	handOverDelay = 2 * time.Millisecond
	// handOverPage keeps one message below the 8,000 bytes that PostgreSQL takes: an item has some 33.
	handOverPage = 150
	// unheardEvery is how often a controller looks for commands that nobody has told it about, and how old they are then.
	unheardEvery = time.Second
)

var (
	fpHandOver = failpoint.Register("handover.before-notify")
	fpUnheard  = failpoint.Register("handover.before-look")
)

// outbox gathers what sessions on other controllers should be sent.
type outbox struct {
	mu      sync.Mutex
	agents  []string
	items   []string
	waiting signal
}

// outboxLimit bounds what waits while the database is away; the look for the unheard finds what is left out.
const outboxLimit = 10_000

func (o *outbox) add(agentID, item string) {
	o.mu.Lock()
	if len(o.items) < outboxLimit {
		o.agents, o.items = append(o.agents, agentID), append(o.items, item)
	}
	o.mu.Unlock()
	o.waiting.fire()
}

// take removes the oldest items, and says whether more are left.
func (o *outbox) take(limit int) (agents, items []string, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(limit, len(o.items))
	agents, items = o.agents[:n:n], o.items[:n:n]
	o.agents, o.items = o.agents[n:], o.items[n:]
	if len(o.items) == 0 {
		o.agents, o.items = nil, nil
	}
	return agents, items, len(o.items) > 0
}

// forward keeps what an agent should be told for the controller that holds its session, if there is any other.
func (e *Engine) forward(agentID, item string) {
	if e.peers.Load() > 0 {
		e.outbox.add(agentID, item)
	}
}

// forwardAll sends what has gathered, after the transactions that it follows from. What it cannot send is found by the
// other controller's own look.
func (e *Engine) forwardAll(ctx context.Context) error {
	w := work{what: "hand commands over"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.outbox.waiting:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(handOverDelay):
		}
		for more := true; more && ctx.Err() == nil; {
			e.attempt(ctx, &w, func(ctx context.Context) error {
				var agents, items []string
				agents, items, more = e.outbox.take(handOverPage)
				if len(items) == 0 {
					return nil
				}
				limited, cancel := context.WithTimeout(ctx, e.cfg.Lease/3)
				defer cancel()
				if err := fpHandOver.HitCtx(ctx); err != nil {
					return err
				}
				return e.store.Sessions.HandOver(limited, e.cfg.ControllerID, agents, items)
			})
		}
	}
}

// forwarded sends what another controller has handed over.
func (e *Engine) forwarded(ctx context.Context, payload string) error {
	cancels := map[string]bool{}
	var commandIDs []string
	for item := range strings.FieldsSeq(payload) {
		if id, ok := strings.CutPrefix(item, handSend); ok {
			commandIDs = append(commandIDs, id)
		} else if id, ok := strings.CutPrefix(item, handCancel); ok {
			commandIDs, cancels[id] = append(commandIDs, id), true
		}
		// Anything else is of a newer version, whose own look does without us.
	}
	if len(commandIDs) == 0 {
		return nil
	}
	commands, err := e.store.Sessions.HeldOut(ctx, commandIDs)
	if err != nil {
		return err
	}
	for _, c := range commands {
		switch {
		case cancels[c.CommandID]:
			e.sendHere(c.ExecutorID, cancelMessage(c.CommandID))
		case c.State == operation.Sent:
			e.sendHere(c.ExecutorID, e.commandMessage(c.Outgoing))
		}
	}
	return nil
}

// resendUnanswered sends again what agents with sessions here have not answered: handed over and lost on the way, or
// decided while this controller's lease was in doubt. Agents know commands by their ids.
func (e *Engine) resendUnanswered(ctx context.Context) error {
	if e.cfg.Sessions.Len() == 0 || !e.lease.Fresh() {
		return nil
	}
	if err := fpUnheard.HitCtx(ctx); err != nil {
		return err
	}
	now := e.clock.Now()
	unheard, err := e.store.Sessions.UnansweredCommands(ctx, e.cfg.ControllerID, now.Add(-unheardEvery))
	if err != nil {
		return err
	}
	for _, u := range unheard {
		if !dueAgain(now.Sub(u.Since), unheardEvery) {
			continue
		}
		if u.Cancel {
			e.sendHere(u.ExecutorID, cancelMessage(u.CommandID))
		} else {
			e.sendHere(u.ExecutorID, e.commandMessage(u.Outgoing))
		}
	}
	return nil
}

// dueAgain reports whether a look every so often finds something of this age at one of its times: after one look, then
// two, four, eight, and so on.
func dueAgain(age, every time.Duration) bool {
	return age >= every && bits.OnesCount64(uint64(age/every)) == 1
}

// commandMessage returns a command as its executor takes it. One whose secret arguments cannot be opened here goes
// without a digest: its executor refuses it, and runs nothing.
func (e *Engine) commandMessage(o operationstore.Outgoing) *fleetv1.ControllerMessage {
	spec, err := commandspec.Sent(o.Spec, e.cfg.OpenArgument)
	if err != nil {
		e.cfg.Logger.Warn("command cannot be opened; its executor refuses it", "command_id", o.CommandID,
			"error", err.Error())
		o.Digest = nil
	} else {
		o.Spec = spec
	}
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{
		Command: &fleetv1.Command{CommandId: o.CommandID, Spec: o.Spec, Digest: o.Digest},
	}}
}

func cancelMessage(commandID string) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Cancel{
		Cancel: &fleetv1.CancelCommand{CommandId: commandID},
	}}
}
