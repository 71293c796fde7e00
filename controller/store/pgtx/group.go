package pgtx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/planted"
	"github.com/ingot-metal/ingot/internal/task"
)

// Group commit: decisions on different machines that come while another is being stored wait for it, and are then
// stored storeTogether, in one transaction. What a transaction costs (its round trips, its flush, what triggers prepare
// anew in each) is paid once for all of them. One that comes alone is stored at once.
//
// A group has the machines of all its members locked before any of them reads, and takes no machine that somebody else
// has locked, so that it never waits for a machine and no two groups for each other. Whoever is not taken, and all
// members of a group that cannot be committed, are stored alone, each in its own transaction, as if there were no
// groups.

const (
	// groupsAtOnce is how many transactions of this kind run side by side, a second one when enough wait for it. More of
	// them are smaller ones, and cost more for each member.
	groupsAtOnce = 2
	groupEnough  = 32
	// groupMost bounds a group. What is noted for histories in one transaction is held in memory by Postgres.
	groupMost = 64
	// groupPatience is how long a group holds up those behind it.
	groupPatience = 250 * time.Millisecond
	// groupTime bounds a group's transaction. It belongs to no caller.
	groupTime = 30 * time.Second
)

// LockKey says what a transaction reads first: an operation with the command that an event is about, or its latest one;
// or a machine and a request for work on it. The machine is locked.
type LockKey struct{ OperationID, CommandID, MachineID, RequestID string }

// change is a transaction that may be stored together with others.
type change struct {
	LockKey
	fn func(pgx.Tx, *dbsqlc.Queries) error
	// done gets nil when it was committed, errAlone when it is to be stored alone, or why it failed.
	done chan error
}

var errAlone = errors.New("to be stored in a transaction of its own")

// groups collects changes while others are being stored.
type groups struct {
	mu      sync.Mutex
	running int
	waiting []*change
}

// InGroup is InTx for what concerns one machine: fn locks it first, and nothing that others lock for long. fn may run
// several times.
func (s *DB) InGroup(ctx context.Context, a LockKey, fn func(pgx.Tx, *dbsqlc.Queries) error) error {
	if planted.VersionGuard {
		return s.InTx(ctx, fn)
	}
	c := &change{LockKey: a, fn: fn, done: make(chan error, 1)}
	alone, taken := s.groups.enter(c)
	if alone {
		leave := s.markSlow()
		defer leave()
		return s.InTx(ctx, fn)
	}
	s.storeApart(taken)
	select {
	case err := <-c.done:
		if errors.Is(err, errAlone) {
			return s.InTx(ctx, fn)
		}
		return err
	case <-ctx.Done():
		// It may be stored all the same, as with any commit whose answer is lost.
		return ctx.Err()
	}
}

// enter says that the change may be stored at once, alone; else it waits with others, and those taken are to be stored
// now.
func (g *groups) enter(c *change) (alone bool, taken []*change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		g.running++
		return true, nil
	}
	g.waiting = append(g.waiting, c)
	if g.running < groupsAtOnce && len(g.waiting) >= groupEnough {
		g.running++
		return false, g.take()
	}
	return false, nil
}

// next takes those who wait when a transaction is over, or has been running for too long. With none left, or with few
// while another one runs that will take them, there is one transaction less.
func (g *groups) next(over bool) []*change {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.waiting); n == 0 || over && g.running > 1 && n < groupEnough {
		g.running--
		return nil
	}
	return g.take()
}

// take takes as many as a group may have.
func (g *groups) take() []*change {
	n := min(len(g.waiting), groupMost)
	taken := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return taken
}

// markSlow counts what runs now. Those who wait are stored when it is over, or when it takes too long.
func (s *DB) markSlow() (leave func()) {
	var once sync.Once
	end := func(over bool) {
		once.Do(func() { s.storeApart(s.groups.next(over)) })
	}
	timer := time.AfterFunc(groupPatience, func() { end(false) })
	return func() {
		timer.Stop()
		end(true)
	}
}

func (s *DB) storeApart(taken []*change) {
	if taken != nil {
		task.Background("group of changes", func() { s.storeTogether(taken) })
	}
}

// storeTogether stores changes in one transaction.
func (s *DB) storeTogether(taken []*change) {
	leave := s.markSlow()
	defer leave()
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	answers := make([]error, len(taken))
	for i := range answers {
		answers[i] = errAlone
	}
	if len(taken) > 1 {
		told, err := s.storeGroup(ctx, taken, answers)
		if err == nil {
			s.notifyAll(told)
		} else {
			s.Log.Debug("a group was not stored; its members are stored alone", "members", len(taken), "error", err.Error())
			for i := range answers {
				answers[i] = errAlone
			}
		}
	}
	for i, c := range taken {
		c.done <- answers[i]
	}
}

func (s *DB) notifyAll(told []*Postcommit) {
	for _, a := range told {
		if a != nil {
			s.Committed(a.notes)
		}
	}
}

// storeGroup runs the members whose machines are free. It sets their answers, and gives what is to be told of those
// that were stored; both hold if there is no error.
func (s *DB) storeGroup(ctx context.Context, taken []*change, answers []error) (told []*Postcommit, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, GroupTx, func(tx pgx.Tx) error {
		q := s.Q.WithTx(tx)
		free, machines, err := freeOf(ctx, q, taken)
		if err != nil {
			return err
		}
		var read []LockKey
		for _, i := range free {
			read = append(read, taken[i].LockKey)
		}
		f, err := s.Preload(ctx, q, read, machines, s.Now())
		if err != nil {
			return err
		}
		told = make([]*Postcommit, len(free))
		var members []func(*memberTx) error
		for n, i := range free {
			members = append(members, func(v *memberTx) error {
				told[n] = &Postcommit{Tx: v, preloaded: f, key: taken[i].LockKey}
				return taken[i].fn(told[n], s.Q.WithTx(told[n]))
			})
		}
		voices, err := (&mergedTx{tx: tx}).run(ctx, members)
		for n, v := range voices {
			answers[free[n]] = v.err
			if repeatable(v.err) {
				answers[free[n]] = errAlone
			}
			if v.err != nil {
				told[n] = nil
			}
		}
		if err != nil {
			return err
		}
		return s.committing(ctx, tx, told...)
	})
	return told, err
}

// GroupTx begins a group's transaction. Its statements look rows up by keys, in lists of any length, which would have
// each planned again every time. They are planned once for each connection, maybe while the tables are empty and
// nothing is known of them: reading all of a table must not seem cheaper then.
var GroupTx = pgx.TxOptions{
	BeginQuery: "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; " +
		"SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"}

// freeOf locks the machines that nobody else has locked, and says which members they are of, one for each machine.
func freeOf(
	ctx context.Context, q *dbsqlc.Queries, taken []*change,
) (free []int, machines []dbsqlc.Machine, err error) {
	var p dbsqlc.LockMachinesForParams
	for _, c := range taken {
		if c.OperationID == "" {
			p.MachineIds = append(p.MachineIds, c.MachineID)
		} else {
			p.OperationIds = append(p.OperationIds, c.OperationID)
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
	for i, c := range taken {
		id := c.MachineID
		if c.OperationID != "" {
			id = machineOf[c.OperationID]
		}
		if m, ok := locked[id]; ok {
			free, machines = append(free, i), append(machines, m)
			delete(locked, id) // another change of it is stored after this one
		}
	}
	return free, machines, nil
}
