package operation

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/planted"
)

var (
	fpBeforeApply         = failpoint.Register("store.before-apply")
	FailpointBeforeCommit = failpoint.Register("store.before-commit")
	fpAfterCommit         = failpoint.Register("store.after-commit")
)

// Decide loads an operation, lets decider.Decide answer the event, and stores the answer, all in one transaction. now
// is when the event came; what the answer writes has the time at which the operation was locked.
func (s *Store) Decide(ctx context.Context, operationID string, e operation.Event, now time.Time) (*Applied, error) {
	a, err := s.store(ctx, s.deciding(ctx, operationID, e, now))
	return s.decided(ctx, operationID, a.applied, err)
}

// Asked is an event of an operation.
type Asked struct {
	OperationID string
	Event       operation.Event
}

// Decided is what became of an event.
type Decided struct {
	Applied *Applied
	Err     error
}

// DecideAll is Decide for events that have come together. Those of one operation, and the grants of one memory, are
// decided in their order.
func (s *Store) DecideAll(ctx context.Context, list []Asked, now time.Time) []Decided {
	out := make([]Decided, len(list))
	for from := 0; from < len(list); from += setMost {
		to := min(from+setMost, len(list))
		var set []change
		for i := from; i < to; i++ {
			set = append(set, s.deciding(ctx, list[i].OperationID, list[i].Event, now))
		}
		for i, a := range s.storeInOrder(ctx, set) {
			d := &out[from+i]
			d.Applied, d.Err = s.decided(ctx, list[from+i].OperationID, a.applied, a.err)
		}
	}
	return out
}

// deciding is the change that an event makes.
func (s *Store) deciding(ctx context.Context, operationID string, e operation.Event, now time.Time) change {
	key := keyOf(operationID, e)
	decide := func(q *dbsqlc.Queries, f *preloaded, w *writes, now time.Time) (answer, error) {
		l, err := s.contextOf(ctx, q, f, key, now)
		if err != nil {
			return answer{}, err
		}
		applied, err := s.decideOn(ctx, q, w, l, e, now)
		if err != nil {
			return answer{}, err
		}
		return answer{applied: applied}, FailpointBeforeCommit.HitCtx(ctx)
	}
	return change{key: key, now: now, asked: s.db.Now(), decide: decide}
}

// decided does what follows the commit of a decision.
func (s *Store) decided(ctx context.Context, operationID string, a *Applied, err error) (*Applied, error) {
	if err != nil {
		return nil, fmt.Errorf("decide on operation %s: %w", operationID, err)
	}
	s.noteApplied(a)
	return a, fpAfterCommit.HitCtx(ctx)
}

// DecideIn is Decide in a transaction that has begun, which need not hold the machine's lock.
func (s *Store) DecideIn(
	ctx context.Context, q *dbsqlc.Queries, operationID string, e operation.Event, now time.Time,
) (*Applied, error) {
	key := keyOf(operationID, e)
	f, err := s.loadFor(ctx, q, key, now)
	if now = s.db.LaterIn(q, now); err != nil {
		return nil, err
	}
	l, err := s.contextOf(ctx, q, f, key, now)
	if err != nil {
		return nil, err
	}
	w := &writes{}
	a, err := s.decideOn(ctx, q, w, l, e, now)
	if err != nil {
		return nil, err
	}
	return a, w.flush(ctx, q)
}

// DecideNoted decides as DecideIn does. After the commit the function of OnApplied gets the decision.
func (s *Store) DecideNoted(
	ctx context.Context, q *dbsqlc.Queries, operationID string, e operation.Event, now time.Time,
) error {
	a, err := s.DecideIn(ctx, q, operationID, e, now)
	if err == nil {
		pgtx.NotesOf(q).Note(a)
	}
	return err
}

// decideOn decides on an operation that is locked, and gathers what the answer writes.
func (s *Store) decideOn(
	ctx context.Context, q *dbsqlc.Queries, w *writes, l *OperationContext, e operation.Event, now time.Time,
) (*Applied, error) {
	l.catalog = s.catalog
	if r, ok := e.(operation.Reported); ok {
		l.report = &r
	}
	if err := l.compareEpoch(ctx, q, e); err != nil {
		return nil, err
	}
	l.countGrant(w, e)
	if planted.StateID {
		e = ofKnownMemory(e, l.Snap.Command)
	}
	d := decider.Decide(l.Snap, e, now)
	if s.db.Log.Enabled(ctx, slog.LevelDebug) {
		s.db.Log.Debug("decided", "operation_id", l.Row.OperationID, "account", decider.Account(l.Snap, e, now))
	}
	if err := fpBeforeApply.HitCtx(ctx); err != nil {
		return nil, err
	}
	if planted.VersionGuard {
		if err := l.pretendCurrent(ctx, q); err != nil {
			return nil, err
		}
	}
	a, err := l.apply(ctx, q, w, d, now)
	if err != nil || l.Machine.Retiring == nil || pgtx.StrVal(l.Machine.CurrentOperationID) != l.Row.OperationID ||
		!operation.IsTerminal(a.Phase) {
		return a, err
	}
	return a, w.special(ctx, q, true, func() error { return s.Retire(ctx, q, l.Machine.MachineID, now) })
}

// keyOf returns what a decision on an event reads first.
func keyOf(operationID string, e operation.Event) pgtx.LockKey {
	k := pgtx.LockKey{OperationID: operationID, CommandID: commandOf(e)}
	if g, ok := e.(operation.GrantAsked); ok {
		k.AgentID, k.StateID = g.AgentID, g.StateID
	}
	return k
}

// commandOf names the command that an event is about.
func commandOf(e operation.Event) string {
	switch e := e.(type) {
	case operation.AckedByAgent:
		return e.CommandID
	case operation.GrantAsked:
		return e.CommandID
	case operation.Resulted:
		return e.CommandID
	default:
		return ""
	}
}

// compareEpoch notes whether the session that the event came in has been overtaken by a newer one of its agent.
func (l *OperationContext) compareEpoch(ctx context.Context, q *dbsqlc.Queries, e operation.Event) error {
	agentID, epoch := sessionOf(e)
	if agentID == "" {
		return nil
	}
	newest, err := l.epochOf(ctx, q, agentID)
	if err != nil {
		return err
	}
	l.Snap.World.StaleEpoch = epoch != newest
	return nil
}

// sessionOf names the agent and the epoch of the session that an event came in; no agent where it came in none.
func sessionOf(e operation.Event) (agentID string, epoch int64) {
	switch e := e.(type) {
	case operation.GrantAsked:
		return e.AgentID, e.Epoch
	case operation.Resulted:
		if e.Epoch != 0 {
			return e.AgentID, e.Epoch
		}
	case operation.SessionOpened:
		if e.Epoch != 0 {
			return e.AgentID, e.Epoch
		}
	}
	return "", 0
}

// countGrant takes the asking agent's grant number. A number that is not above the last one leaves the last one as it
// is and tells Decide so, unless the last ask itself has come again.
func (l *OperationContext) countGrant(w *writes, e operation.Event) {
	g, ok := e.(operation.GrantAsked)
	if !ok || l.Snap.World.StaleEpoch {
		return
	}
	k := memory{g.AgentID, g.StateID}
	last, known := l.grants[k]
	if known && int64(g.Seq) > last.seq {
		w.grants = append(w.grants, grant{k, int64(g.Seq), g.CommandID, g.Nonce})
	} else if !planted.MemoryNumbers && !(known && g.Repeats(uint64(last.seq), last.commandID, last.nonce)) {
		l.Snap.World.LastGrantSeq = g.Seq
	}
}

// epochOf is the epoch of the agent's newest session.
func (l *OperationContext) epochOf(ctx context.Context, q *dbsqlc.Queries, agentID string) (int64, error) {
	for _, r := range l.executors {
		if r.AgentID == agentID {
			return r.Epoch, nil
		}
	}
	agent, err := q.GetAgent(ctx, agentID)
	if err != nil {
		return 0, fmt.Errorf("read agent: %w", err)
	}
	return agent.Epoch, nil
}

// Cancel asks an active operation to stop and writes who asked.
func (s *Store) Cancel(ctx context.Context, operationID, actor string, now time.Time) (*Applied, error) {
	var out *Applied
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if out, err = s.DecideIn(ctx, q, operationID, operation.CancelAsked{Actor: actor}, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "CANCEL", Target: out.MachineID,
			Operation: operationID}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("cancel operation: %w", err)
	}
	return out, nil
}

// Refused is the error of an event that was refused, nil of one that was not. It says which operation, and where that
// stands: a client that repeats a cancel learns from it what became of the first one.
func (a *Applied) Refused() error {
	r := a.Decision.Refusal
	if r == nil {
		return nil
	}
	return r.Failure().WithMeta("operation_id", a.Decision.Op.ID).
		WithMeta("phase", string(a.Decision.Op.Phase)).WithMeta("machine_id", a.MachineID)
}
