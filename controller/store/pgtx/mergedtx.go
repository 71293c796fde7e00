package pgtx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/task"
)

// mergedTx runs several members in one transaction, as if each had it to itself. Every member runs its own code; when
// all of them wait for the database, what they have asked is sent in one round trip, and each reads its answers in its
// turn.
//
// Nothing but one goroutine at a time touches the connection: the one that sends, or the member whose turn it is.
type mergedTx struct {
	tx    pgx.Tx
	moves chan *memberTx
}

// memberTx is a member's side of it. Its errors are those of a transaction.
type memberTx struct {
	pgx.Tx // nil: what is not below, no member may do
	step   *mergedTx
	// asked is what the member waits to have sent, nil once it has ended.
	asked *pgx.Batch
	// written are the answers to it, if it only writes.
	written *written
	turn    chan pgx.BatchResults
	spoken  chan struct{}
	last    *answers
	ended   bool
	// wrote says that the member has sent something else than a SELECT.
	wrote bool
	err   error
}

// run has every function talk to the transaction through a voice of its own, until all have ended. An error says that
// the transaction is not to be committed.
func (l *mergedTx) run(ctx context.Context, members []func(*memberTx) error) ([]*memberTx, error) {
	l.moves = make(chan *memberTx, len(members))
	voices := make([]*memberTx, 0, len(members))
	for _, fn := range members {
		v := &memberTx{step: l, turn: make(chan pgx.BatchResults), spoken: make(chan struct{})}
		voices = append(voices, v)
		task.Background("member of a group", func() {
			v.err = task.Run(ctx, "member of a group", func(context.Context) error { return fn(v) })
			if v.last != nil {
				v.last.done() // a panic may have left it open
			}
			v.asked, v.ended = nil, true
			l.moves <- v
		})
	}
	var failed error
	for left := len(voices); left > 0; {
		for range left {
			<-l.moves
		}
		left = 0
		var asking []*memberTx
		for _, v := range voices {
			if !v.ended {
				left++
				asking = append(asking, v)
			}
		}
		if err := l.roundTrip(ctx, asking); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	for _, v := range voices {
		if v.err != nil && v.wrote {
			failed = errors.Join(failed, v.err)
		}
	}
	return voices, failed
}

// roundTrip sends what is asked and lets each read its answers. What only writes goes before what reads. After an error
// all others get errors too, and end.
func (l *mergedTx) roundTrip(ctx context.Context, asking []*memberTx) error {
	if len(asking) == 0 {
		return nil
	}
	all := &pgx.Batch{}
	sets, rest := l.sort(asking)
	for _, s := range sets {
		all.Queue(s.sql, s.args...)
	}
	for _, v := range rest {
		for _, q := range v.asked.QueuedQueries {
			all.Queue(q.SQL, q.Arguments...)
		}
	}
	results := l.tx.SendBatch(ctx, all)
	var failed error
	for _, s := range sets {
		if failed == nil {
			failed = s.read(results)
		}
	}
	for _, v := range asking {
		if v.written == nil {
			v.turn <- results
		} else {
			v.written.err = failed
			v.turn <- v.written
		}
		<-v.spoken
	}
	if err := errors.Join(failed, results.Close()); err != nil {
		return fmt.Errorf("ask together: %w", err)
	}
	return nil
}

// sort puts together what is asked by those who only write.
func (l *mergedTx) sort(asking []*memberTx) (sets []*sameWrites, rest []*memberTx) {
	var lists [][]*oneWrite
	for _, v := range asking {
		if v.written = writesOf(v.asked); v.written == nil {
			rest = append(rest, v)
		} else {
			lists = append(lists, v.written.list)
		}
	}
	return setsOf(lists), rest
}

// writesOf notes a member's statements, if they only write.
func writesOf(b *pgx.Batch) *written {
	w := &written{}
	for _, q := range b.QueuedQueries {
		if !dbsqlc.WritesOnly(q.SQL) {
			return nil
		}
		w.list = append(w.list, &oneWrite{query: q})
	}
	return w
}

// ask waits until the queries have been sent and it is this member's turn to read. Whoever has read everything must say
// so.
func (v *memberTx) ask(b *pgx.Batch) *answers {
	for _, q := range b.QueuedQueries {
		v.wrote = v.wrote || !readsOnly(q.SQL)
	}
	v.asked = b
	v.step.moves <- v
	v.last = &answers{BatchResults: <-v.turn, v: v, left: len(b.QueuedQueries)}
	return v.last
}

// readsOnly knows the statements of sqlc by their first word after the comment.
func readsOnly(sql string) bool {
	_, statement, found := strings.Cut(sql, "\n")
	return found && strings.HasPrefix(statement, "SELECT")
}

// Exec implements pgx.Tx.
func (v *memberTx) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	a := v.ask(one(sql, args))
	defer a.done()
	return a.BatchResults.Exec()
}

// Query implements pgx.Tx.
func (v *memberTx) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	a := v.ask(one(sql, args))
	rows, err := a.BatchResults.Query()
	if err != nil {
		a.done()
		return rows, err
	}
	return &lastRows{Rows: rows, a: a}, nil
}

// QueryRow implements pgx.Tx.
func (v *memberTx) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	a := v.ask(one(sql, args))
	return lastRow{a.BatchResults.QueryRow(), a}
}

// SendBatch implements pgx.Tx.
func (v *memberTx) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults { return v.ask(b) }

// Conn implements pgx.Tx, for whoever looks at how the connection is configured. It is not to be talked to.
func (v *memberTx) Conn() *pgx.Conn { return v.step.tx.Conn() }

func one(sql string, args []any) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	return b
}

// answers are a member's part of the results.
type answers struct {
	pgx.BatchResults
	v    *memberTx
	left int
	over bool
}

// done gives the turn to the next.
func (a *answers) done() {
	if a.over {
		return
	}
	a.over = true
	a.v.spoken <- struct{}{}
}

// Exec implements pgx.BatchResults.
func (a *answers) Exec() (pgconn.CommandTag, error) {
	a.left--
	return a.BatchResults.Exec()
}

// Query implements pgx.BatchResults.
func (a *answers) Query() (pgx.Rows, error) {
	a.left--
	return a.BatchResults.Query()
}

// QueryRow implements pgx.BatchResults.
func (a *answers) QueryRow() pgx.Row {
	a.left--
	return a.BatchResults.QueryRow()
}

// Close reads what is left of the member's own answers, and no others.
func (a *answers) Close() error {
	if a.over {
		return nil
	}
	defer a.done()
	var first error
	for ; a.left > 0; a.left-- {
		if _, err := a.BatchResults.Exec(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// lastRows give the turn on when they are closed.
type lastRows struct {
	pgx.Rows
	a *answers
}

// Close implements pgx.Rows.
func (r *lastRows) Close() {
	r.Rows.Close()
	r.a.done()
}

// Next implements pgx.Rows: after the last row it has closed them.
func (r *lastRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

type lastRow struct {
	pgx.Row
	a *answers
}

// Scan implements pgx.Row.
func (r lastRow) Scan(dest ...any) error {
	defer r.a.done()
	return r.Row.Scan(dest...)
}
