package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/session"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/failpoint"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/pki"
)

var (
	fpBeforeGrant  = failpoint.Register("engine.before-grant")
	fpAfterGrant   = failpoint.Register("engine.after-grant")
	fpBeforeResult = failpoint.Register("engine.before-result")
	fpAfterResult  = failpoint.Register("engine.after-result")
)

// Agents takes what agents send: their sessions, requests for grants, results and acknowledgements.
type Agents struct {
	common
	operations *operationstore.Store
	sessions   *sessionstore.Store
	decisions  *decisions
	sender     *commandSender
	position   *positionCheck
	lease      *lease
	peers      *peers
	changes    *changes
	signals    signals
	index      *commandIndex
	acks       acks
}

// LeaseFresh reports whether this controller may send commands and grants.
func (ag *Agents) LeaseFresh() bool { return ag.lease.Fresh() }

// HeartbeatInterval returns the interval that new sessions are told.
func (ag *Agents) HeartbeatInterval() time.Duration { return ag.peers.heartbeatInterval() }

// Handle brings an event to an operation and carries out what is decided.
func (ag *Agents) Handle(
	ctx context.Context, operationID string, ev operation.Event,
) (*operationstore.Applied, error) {
	return ag.decisions.handle(ctx, operationID, ev)
}

// StartedGrant compares a grant that an agent reports to have begun a command under. A database that does not know it
// has gone back.
func (ag *Agents) StartedGrant(ctx context.Context, agentID string, s *fleetv1.StartedGrant) error {
	return ag.position.startedGrant(ctx, agentID, s)
}

// SessionOpened brings a new session to every operation that it may concern, then sends what the agent may have missed.
func (ag *Agents) SessionOpened(ctx context.Context, s *session.Session, o *sessionstore.Opened) error {
	if o.Cloned {
		// Before anything else: the boot of a clone differs from the machine's own and would pass for proof of a reboot.
		return ag.quarantine(ctx, s, "an older boot of this machine's identity came back after a newer one")
	}
	ag.signals.sessionOpened()
	for _, id := range o.Operations {
		if _, err := ag.decisions.handle(ctx, id, o.Event(s.AgentID, s.StateID, s.BootID)); err != nil {
			return err
		}
	}
	if o.RolledBack {
		return nil
	}
	waiting, err := ag.sessions.Unsettled(ctx, s.AgentID)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		ag.sender.send(w)
	}
	ag.changes.publish()
	return nil
}

// CloneProven quarantines the machine of a session whose identity is in use by two machines at once.
func (ag *Agents) CloneProven(ctx context.Context, s *session.Session) error {
	message := "two machines with different hardware use this machine's identity at the same time"
	if what := s.OtherHardware(); what != "" {
		message += ": " + what
	}
	return ag.quarantine(ctx, s, message)
}

func (ag *Agents) quarantine(ctx context.Context, s *session.Session, message string) error {
	if s.MachineID == "" {
		return nil
	}
	ag.log.Warn("machine quarantined", "machine_id", s.MachineID, "agent_id", s.AgentID, "reason", "CLONE_DETECTED")
	operationID, err := ag.operations.Quarantine(ctx, s.MachineID, "CLONE_DETECTED", message, ag.clock.Now())
	if err != nil || operationID == "" {
		return err
	}
	_, err = ag.decisions.handle(ctx, operationID, operation.Quarantine{Reason: "CLONE_DETECTED", Message: message})
	return err
}

// taken is a message of an agent that asks for a decision.
type taken struct {
	grant  *fleetv1.GrantRequest
	result *fleetv1.CommandResult
	asked  operationstore.Asked
	// reply is what to send; where it is there from the beginning nothing is asked.
	reply *fleetv1.ControllerMessage
	err   error
}

// Take answers an agent's requests for grants and its results, which have come together, in their order. The results'
// acknowledgements are returned once they are stored. An error ends the session.
func (ag *Agents) Take(
	ctx context.Context, s *session.Session, list ...*fleetv1.AgentMessage,
) ([]*fleetv1.ControllerMessage, error) {
	all := make([]taken, len(list))
	var asked []operationstore.Asked
	for i, m := range list {
		all[i] = ag.begin(ctx, s, m)
		if all[i].err != nil {
			return nil, all[i].err
		}
		if all[i].reply == nil {
			asked = append(asked, all[i].asked)
		}
	}
	began := ag.clock.Now()
	decided := ag.decide(ctx, asked)
	var replies []*fleetv1.ControllerMessage
	var failed error
	for _, t := range all {
		if t.reply == nil {
			d := decided[0]
			decided = decided[1:]
			if d.Err == nil {
				ag.decisions.applied(ctx, d.Applied, began)
			}
			t.reply, t.err = ag.finish(ctx, s, t, d)
			failed = errors.Join(failed, t.err)
		}
		if t.reply != nil {
			replies = append(replies, t.reply)
		}
	}
	return replies, failed
}

func (ag *Agents) decide(ctx context.Context, asked []operationstore.Asked) []operationstore.Decided {
	if len(asked) != 1 {
		return ag.operations.DecideAll(ctx, asked, ag.clock.Now())
	}
	a, err := ag.operations.Decide(ctx, asked[0].OperationID, asked[0].Event, ag.clock.Now())
	return []operationstore.Decided{{Applied: a, Err: err}}
}

// begin returns what a message asks, or its reply.
func (ag *Agents) begin(ctx context.Context, s *session.Session, m *fleetv1.AgentMessage) taken {
	if r := m.GetGrantRequest(); r != nil {
		t := taken{grant: r}
		t.asked, t.reply = ag.beginGrant(ctx, s, r)
		return t
	}
	t := taken{result: m.GetResult()}
	t.asked, t.reply, t.err = ag.beginResult(ctx, s, t.result)
	return t
}

func (ag *Agents) finish(
	ctx context.Context, s *session.Session, t taken, d operationstore.Decided,
) (*fleetv1.ControllerMessage, error) {
	if t.grant != nil {
		return ag.finishGrant(ctx, s, t.grant, d), nil
	}
	if d.Err != nil {
		return nil, d.Err
	}
	return resultAck(t.result), fpAfterResult.HitCtx(ctx)
}

func refuseGrant(r *fleetv1.GrantRequest, reason, message string, final bool) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_GrantRefused{
		GrantRefused: &fleetv1.GrantRefused{
			CommandId: r.GetCommandId(), Nonce: r.GetNonce(), Reason: reason, Message: message, Final: final,
			RetryAfterMs: 1000,
		}}}
}

func (ag *Agents) beginGrant(
	ctx context.Context, s *session.Session, r *fleetv1.GrantRequest,
) (asked operationstore.Asked, refused *fleetv1.ControllerMessage) {
	ag.acks.drop(r.GetCommandId())
	if !ag.lease.Fresh() {
		return asked, refuseGrant(r, "CONTROLLER_LEASE_LOST", "the controller is cut off from its database", false)
	}
	if err := fpBeforeGrant.HitCtx(ctx); err != nil {
		return asked, refuseGrant(r, "INTERNAL", "try again", false)
	}
	if !ag.position.sure() {
		return asked, refuseInDoubt(r)
	}
	operationID := ag.index.of(r.GetCommandId())
	if operationID == "" {
		var err error
		operationID, _, err = ag.sessions.CommandState(ctx, r.GetCommandId())
		if err != nil {
			return asked, ag.grantFailed(s, r, err)
		}
		if operationID == "" {
			return asked, refuseGrant(r, "GRANT_REFUSED", "the command is not known", true)
		}
	}
	return operationstore.Asked{OperationID: operationID, Event: operation.GrantAsked{
		CommandID: r.GetCommandId(), AgentID: s.AgentID, StateID: r.GetStateId(), BootID: r.GetBootId(),
		Seq: r.GetSeq(), Nonce: r.GetNonce(), Digest: r.GetDigest(), Earlier: r.GetEarlier(), SessionBootID: s.BootID,
		Epoch: s.Epoch,
	}}, nil
}

func (ag *Agents) grantFailed(s *session.Session, r *fleetv1.GrantRequest, err error) *fleetv1.ControllerMessage {
	ag.log.Error("grant failed", "command_id", r.GetCommandId(), "agent_id", s.AgentID, "error", err.Error())
	if pgtx.OutcomeUnknown(err) {
		return refuseGrant(r, pgtx.ReasonOutcomeUnknown, "the controller cannot tell what it decided; ask again", false)
	}
	return refuseGrant(r, "DATABASE_UNAVAILABLE", "the controller could not decide; ask again", false)
}

// finishGrant returns the grant that was decided, signed, or its refusal.
func (ag *Agents) finishGrant(
	ctx context.Context, s *session.Session, r *fleetv1.GrantRequest, d operationstore.Decided,
) *fleetv1.ControllerMessage {
	err := d.Err
	if err == nil {
		err = fpAfterGrant.HitCtx(ctx)
	}
	switch {
	case err != nil:
		return ag.grantFailed(s, r, err)
	case !d.Applied.Decision.Grant:
		rr := d.Applied.Decision.Refusal
		ag.log.Warn("grant refused", "command_id", r.GetCommandId(), "operation_id", d.Applied.OperationID,
			"agent_id", s.AgentID, "reason", rr.Reason)
		return refuseGrant(r, rr.Reason, rr.Message, true)
	case !ag.position.sure():
		// The decision was made in a database that is not compared yet. It stays: the agent gets it when it asks again.
		return refuseInDoubt(r)
	}
	ag.log.Info("grant given", "command_id", r.GetCommandId(), "operation_id", d.Applied.OperationID,
		"machine_id", d.Applied.MachineID, "agent_id", s.AgentID)
	return ag.signGrant(s, r, d.Applied)
}

func (ag *Agents) signGrant(
	s *session.Session, r *fleetv1.GrantRequest, a *operationstore.Applied,
) *fleetv1.ControllerMessage {
	at := ag.clock.Now().UnixMilli()
	sig, err := pki.SignGrant(ag.cfg.GrantKey, pki.GrantClaims{
		CommandID: r.GetCommandId(), TargetID: a.MachineID, AgentID: s.AgentID, StateID: r.GetStateId(), Nonce: r.GetNonce(),
		Digest: r.GetDigest(), Seq: r.GetSeq(), IssuedAtUnixMs: at,
	})
	if err != nil {
		// Only a request with an empty field cannot be signed, and it would not be honoured either.
		return refuseGrant(r, "GRANT_REFUSED", err.Error(), false)
	}
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Grant{Grant: &fleetv1.Grant{
		CommandId: r.GetCommandId(), TargetId: a.MachineID, Digest: r.GetDigest(), Nonce: r.GetNonce(), Seq: r.GetSeq(),
		IssuedAtUnixMs: at, Signature: sig,
	}}}
}

func resultAck(r *fleetv1.CommandResult) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_ResultAck{
		ResultAck: &fleetv1.ResultAck{CommandId: r.GetCommandId(), Settled: true},
	}}
}

// beginResult returns the event of a result, or its acknowledgement where no operation waits for it.
func (ag *Agents) beginResult(
	ctx context.Context, s *session.Session, r *fleetv1.CommandResult,
) (asked operationstore.Asked, ack *fleetv1.ControllerMessage, err error) {
	ag.acks.drop(r.GetCommandId())
	if err := fpBeforeResult.HitCtx(ctx); err != nil {
		return asked, nil, err
	}
	operationID, waited, err := ag.operationOf(ctx, r.GetCommandId())
	switch {
	case err != nil:
		return asked, nil, err
	case operationID == "":
		// This database does not know the command: no operation waits for it.
		ag.log.Warn("result of an unknown command", "command_id", r.GetCommandId(), "agent_id", s.AgentID)
		return asked, resultAck(r), nil
	case !waited:
		// Seen before: an agent sends a result again whenever a session brings it the command again.
		return asked, resultAck(r), nil
	}
	return operationstore.Asked{OperationID: operationID, Event: operation.Resulted{
		CommandID: r.GetCommandId(), AgentID: s.AgentID, StateID: r.GetStateId(),
		Outcome: operation.Outcome(r.GetOutcome().String()), Reason: r.GetReason(), Message: r.GetMessage(),
		Evidence: r.GetEvidence(), Retryable: r.GetRetryable(), SessionBootID: s.BootID, Epoch: s.Epoch,
	}}, nil, nil
}

// operationOf returns the operation of a command and reports whether it waits for the result. For a command that was
// sent from here both are known the first time.
func (ag *Agents) operationOf(ctx context.Context, commandID string) (operationID string, waited bool, err error) {
	if id := ag.index.take(commandID); id != "" {
		return id, true, nil
	}
	operationID, state, err := ag.sessions.CommandState(ctx, commandID)
	return operationID, state != operation.Done, err
}

// Ack notes that an agent holds a command. It is written a moment later, unless a grant or a result comes first.
func (ag *Agents) Ack(s *session.Session, commandID string) {
	ag.acks.add(commandID, waitingAck{s.AgentID, ag.clock.Now()})
}

// acks are acknowledgements that wait to be written.
type acks struct {
	mu      sync.Mutex
	waiting map[string]waitingAck
}

type waitingAck struct {
	agentID string
	at      time.Time
}

func (a *acks) add(commandID string, w waitingAck) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[commandID] = w
}

func (a *acks) drop(commandID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, commandID)
}

// ackDelay is how long an acknowledgement waits for something better.
const ackDelay = 300 * time.Millisecond

func (a *acks) due(now time.Time) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for id, w := range a.waiting {
		if now.Sub(w.at) >= ackDelay {
			out[id] = w.agentID
			delete(a.waiting, id)
		}
	}
	return out
}

func (ag *Agents) flushAcks(ctx context.Context) error {
	for commandID, agentID := range ag.acks.due(ag.clock.Now()) {
		// An agent acknowledges again what a new session has brought again; mostly the grant or the result was first.
		operationID, state, err := ag.sessions.CommandState(ctx, commandID)
		if err != nil {
			return err
		}
		if state != operation.Sent {
			continue
		}
		if _, err := ag.decisions.handle(ctx, operationID, operation.AckedByAgent{CommandID: commandID,
			AgentID: agentID}); err != nil {
			return err
		}
	}
	return nil
}
