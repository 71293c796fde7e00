package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/planted"
	"github.com/ingot-metal/ingot/internal/task"
)

// Changes of different machines that come together are stored as a set, in one transaction: it locks the machines,
// loads what all changes begin with, decides each by itself, and writes all rows of a kind by one statement. A set
// takes no machine that somebody else has locked, so that it waits for none and no two sets wait for each other. A
// change whose machine is not free, or that needs more than what was loaded, has a transaction of its own, and so have
// all changes of a set that is known not to be committed.

const (
	// setEnough is the number of waiting changes that make a second set beside the one under way. More and smaller sets
	// cost more for each change.
	setEnough = 32
	// setMost bounds a set. What histories note of a transaction is held in memory by Postgres.
	setMost = 64
	// setPatience is how long a set keeps the changes behind it waiting.
	setPatience = 250 * time.Millisecond
)

// change is a request for an operation, or an event of one.
type change struct {
	key pgtx.LockKey
	// now is the caller's time, at asked of the store's clock.
	now, asked time.Time
	// decide gathers what to write from what was loaded; now is the time at which the locks were held. It may be called
	// more than once, and after its caller has gone: it writes to nothing but w.
	decide func(q *dbsqlc.Queries, f *preloaded, w *writes, now time.Time) (answer, error)
}

// answer is what became of a change: the decision on an event, or the operation of a request.
type answer struct {
	applied *Applied
	op      *baremetalv1.Operation
	created bool
	err     error
}

// store stores a change, with others or in a transaction of its own.
func (s *Store) store(ctx context.Context, c change) (answer, error) {
	if planted.VersionGuard {
		a := s.storeAlone(ctx, c)
		return a, a.err
	}
	a, err := s.changes.Do(ctx, c)
	if err != nil {
		return answer{}, err
	}
	if errors.Is(a.err, pgtx.ErrAlone) {
		a = s.storeAlone(ctx, c)
	}
	return a, a.err
}

// storeInOrder stores changes as a set, and those that cannot be stored so one after the other.
func (s *Store) storeInOrder(ctx context.Context, set []change) []answer {
	answers := allAlone(len(set))
	if len(set) > 1 && !planted.VersionGuard {
		answers, _ = s.storeSet(ctx, set) // its own error is always nil
	}
	for i, c := range set {
		if errors.Is(answers[i].err, pgtx.ErrAlone) {
			answers[i] = s.storeAlone(ctx, c)
		}
	}
	return answers
}

func allAlone(n int) []answer { return slices.Repeat([]answer{{err: pgtx.ErrAlone}}, n) }

func (s *Store) storeAlone(ctx context.Context, c change) (a answer) {
	err := s.First.with(func(rows dbsqlc.Writes) error {
		return s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			f, err := s.loadFor(ctx, q, c.key, c.now)
			if err != nil {
				return err
			}
			w := &writes{}
			if a, err = c.decide(q, f, w, s.db.Later(c.now, c.asked)); err != nil {
				return err
			}
			w.Append(rows)
			return w.flush(ctx, q)
		})
	})
	if err != nil {
		return answer{err: err}
	}
	return a
}

// storeSet stores changes together. It returns what became of each: pgtx.ErrAlone where it was not stored.
func (s *Store) storeSet(ctx context.Context, set []change) ([]answer, error) {
	if len(set) == 1 {
		return []answer{s.storeAlone(ctx, set[0])}, nil
	}
	answers := allAlone(len(set))
	err := s.First.with(func(rows dbsqlc.Writes) error {
		return s.db.InSet(ctx, func(tx pgx.Tx) ([]*pgtx.Notes, error) { return s.writeSet(ctx, tx, set, answers, rows) })
	})
	if pgtx.OutcomeUnknown(err) {
		// Stored alone, a change that is committed would count twice, and its grant's number as used.
		for i := range answers {
			if answers[i].err == nil {
				answers[i] = answer{err: err}
			}
		}
		return answers, nil
	}
	if err != nil {
		s.db.Log.Debug("a set was not stored; its members are stored alone", "members", len(set), "error", err.Error())
		return allAlone(len(set)), nil
	}
	return answers, nil
}

// writeSet decides the changes of a set whose machines are free, and writes all their rows and those given.
func (s *Store) writeSet(
	ctx context.Context, tx pgx.Tx, set []change, answers []answer, rows dbsqlc.Writes,
) (told []*pgtx.Notes, err error) {
	free, f, err := lockAndLoadFree(ctx, s.db.Q.WithTx(tx), set, s.db.Now())
	if err != nil {
		return nil, err
	}
	highest, left := map[memory]grant{}, map[memory]bool{}
	for i, c := range set {
		m := memory{c.key.AgentID, c.key.StateID}
		if !free[i] || left[m] {
			left[m] = m.agentID != "" // its later numbers must not be counted before this one
			continue
		}
		member, w := &pgtx.Member{}, &writes{}
		if answers[i] = c.asMember(ctx, s.db, dbsqlc.New(member), f, w); answers[i].err != nil {
			left[m] = m.agentID != "" && errors.Is(answers[i].err, pgtx.ErrAlone)
			continue
		}
		for _, g := range w.grants {
			f.grants[g.memory], highest[g.memory] = g, g
		}
		told = append(told, &member.Notes)
		rows.Append(w.Writes)
	}
	for _, g := range highest {
		rows.GrantNumbers = append(rows.GrantNumbers, g.row())
	}
	return told, s.db.Q.WithTx(tx).SendTogether(ctx, rows)
}

// asMember decides the change as one of a set. A panic is met again where the change is stored alone.
func (c change) asMember(
	ctx context.Context, db *pgtx.DB, q *dbsqlc.Queries, f *preloaded, w *writes,
) answer {
	a, decided := answer{}, false
	err := task.Run(ctx, "decide", func(context.Context) (err error) {
		a, err = c.decide(q, f, w, db.Later(c.now, c.asked))
		decided = true
		return err
	})
	switch {
	case !decided:
		return answer{err: pgtx.ErrAlone}
	case err != nil:
		return answer{err: err}
	}
	return a
}

// lockAndLoadFree locks the machines that nobody else has locked, one change of each, and loads what they begin with.
func lockAndLoadFree(
	ctx context.Context, q *dbsqlc.Queries, set []change, now time.Time,
) (free map[int]bool, f *preloaded, err error) {
	var p dbsqlc.LockMachinesForParams
	for _, c := range set {
		if c.key.OperationID == "" {
			p.MachineIds = append(p.MachineIds, c.key.MachineID)
		} else {
			p.OperationIds = append(p.OperationIds, c.key.OperationID)
		}
	}
	rows, err := q.LockMachinesFor(ctx, p)
	if err != nil {
		return nil, nil, fmt.Errorf("lock machines: %w", err)
	}
	locked, machineOf := map[string]dbsqlc.Machine{}, map[string]string{}
	for _, r := range rows {
		locked[r.Machine.MachineID] = r.Machine
		machineOf[r.OperationID] = r.Machine.MachineID
	}
	free = map[int]bool{}
	var keys []pgtx.LockKey
	var machines []dbsqlc.Machine
	for i, c := range set {
		id := c.key.MachineID
		if c.key.OperationID != "" {
			id = machineOf[c.key.OperationID]
		}
		if m, ok := locked[id]; ok {
			free[i], keys, machines = true, append(keys, c.key), append(machines, m)
			delete(locked, id) // another change of it is stored after this one
		}
	}
	f, err = preload(ctx, q, keys, machines, now)
	return free, f, err
}
