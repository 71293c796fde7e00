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
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
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
	// unheardEvery is how often a controller searches for commands that were not handed to it, and their least age.
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

// take removes the oldest items and reports whether more are left.
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

// commandSender sends committed commands and their cancellations to agents, here or by way of other controllers.
type commandSender struct {
	common
	sessions *sessionstore.Store
	lease    *lease
	peers    *peers
	// outbox holds what other controllers should send, inbox what they have asked this one to send.
	outbox outbox
	inbox  *outbox
}

// send passes a committed command to its executor, if that is connected here, or hands it over to the controller where
// it is. An executor that is connected nowhere gets the command with its next session.
func (cs *commandSender) send(o operationstore.Outgoing) {
	if !cs.sendHere(o.ExecutorID, cs.commandMessage(o)) {
		cs.forward(o.ExecutorID, handSend+o.CommandID)
	}
}

// sendHere reports whether the agent's session is here. While the lease is in doubt it sends nothing; the look for what
// is unheard makes up for it.
func (cs *commandSender) sendHere(agentID string, m *fleetv1.ControllerMessage) bool {
	s := cs.cfg.Sessions.Get(agentID)
	if s == nil {
		return false
	}
	if cs.lease.Fresh() {
		s.Send(m)
	}
	return true
}

// forward keeps what an agent should be told for the controller that holds its session, if there is any other.
func (cs *commandSender) forward(agentID, item string) {
	if cs.peers.others.Load() > 0 {
		cs.outbox.add(agentID, item)
	}
}

// forwardAll sends what has gathered, after the transactions that it follows from. What it cannot send is found by the
// other controller's own look.
func (cs *commandSender) forwardAll(ctx context.Context) error {
	w := work{what: "hand commands over"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cs.outbox.waiting:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cs.clock.After(handOverDelay):
		}
		for more := true; more && ctx.Err() == nil; {
			cs.attempt(ctx, &w, func(ctx context.Context) error {
				var agents, items []string
				agents, items, more = cs.outbox.take(handOverPage)
				if len(items) == 0 {
					return nil
				}
				limited, cancel := context.WithTimeout(ctx, cs.cfg.Lease/3)
				defer cancel()
				if err := fpHandOver.HitCtx(ctx); err != nil {
					return err
				}
				return cs.sessions.HandOver(limited, cs.cfg.ControllerID, agents, items)
			})
		}
	}
}

// forwarded sends what another controller has handed over.
func (cs *commandSender) forwarded(ctx context.Context, payload string) error {
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
	commands, err := cs.sessions.HeldOut(ctx, commandIDs)
	if err != nil {
		return err
	}
	for _, c := range commands {
		switch {
		case cancels[c.CommandID]:
			cs.sendHere(c.ExecutorID, cancelMessage(c.CommandID))
		case c.State == operation.Sent:
			cs.sendHere(c.ExecutorID, cs.commandMessage(c.Outgoing))
		}
	}
	return nil
}

// resendUnanswered sends again what agents with sessions here have not answered: handed over and lost on the way, or
// decided while this controller's lease was in doubt. Agents know commands by their ids.
func (cs *commandSender) resendUnanswered(ctx context.Context) error {
	if cs.cfg.Sessions.Len() == 0 || !cs.lease.Fresh() {
		return nil
	}
	if err := fpUnheard.HitCtx(ctx); err != nil {
		return err
	}
	now := cs.clock.Now()
	unheard, err := cs.sessions.UnansweredCommands(ctx, cs.cfg.ControllerID, now.Add(-unheardEvery))
	if err != nil {
		return err
	}
	for _, u := range unheard {
		if !dueAgain(now.Sub(u.Since), unheardEvery) {
			continue
		}
		if u.Cancel {
			cs.sendHere(u.ExecutorID, cancelMessage(u.CommandID))
		} else {
			cs.sendHere(u.ExecutorID, cs.commandMessage(u.Outgoing))
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
func (cs *commandSender) commandMessage(o operationstore.Outgoing) *fleetv1.ControllerMessage {
	spec, err := commandspec.Sent(o.Spec, cs.cfg.OpenArgument)
	if err != nil {
		cs.cfg.Logger.Warn("command cannot be opened; its executor refuses it", "command_id", o.CommandID,
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

// takeForwarded works off what was handed over, apart from the connection that hears it.
func (cs *commandSender) takeForwarded(ctx context.Context) error {
	w := work{what: "take commands over"}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cs.inbox.waiting:
		}
		for more := true; more; {
			var items []string
			_, items, more = cs.inbox.take(handOverPage)
			cs.attempt(ctx, &w, func(ctx context.Context) error { return cs.forwarded(ctx, strings.Join(items, " ")) })
		}
	}
}
