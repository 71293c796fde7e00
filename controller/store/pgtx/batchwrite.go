package pgtx

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// WriteTogether sends what several members write, each to a machine of its own: one statement for all rows of a kind.
// An error is one of any member, after which the transaction must be rolled back.
func WriteTogether(ctx context.Context, tx pgx.Tx, members ...[]func(*dbsqlc.Queries) error) error {
	lists := make([][]*oneWrite, len(members))
	for i, writes := range members {
		batch, err := dbsqlc.Noted(writes...)
		if err != nil {
			return err
		}
		for _, q := range batch.QueuedQueries {
			lists[i] = append(lists[i], &oneWrite{query: q})
		}
	}
	sets := setsOf(slices.Clone(lists))
	if len(sets) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	for _, s := range sets {
		batch.Queue(s.sql, s.args...)
	}
	results := tx.SendBatch(ctx, batch)
	for _, s := range sets {
		if err := s.read(results); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	if err := results.Close(); err != nil {
		return err
	}
	for i, writes := range members {
		if err := dbsqlc.Answered(&written{list: lists[i]}, writes...); err != nil {
			return err
		}
	}
	return nil
}

// sameWrites is one statement that does what several members have asked for.
type sameWrites struct {
	sql      string
	args     []any
	numbered bool
	asked    []*oneWrite
}

// oneWrite is one statement of a member.
type oneWrite struct {
	query *pgx.QueuedQuery
	tag   pgconn.CommandTag
}

// written is what a member gets whose statements were sent together with those of others.
type written struct {
	list []*oneWrite
}

// setsOf puts together the statements of members that only write: as few statements as there can be, each member's in
// its order. Members write to different machines, so that it does not matter whose comes first.
func setsOf(members [][]*oneWrite) []*sameWrites {
	var out []*sameWrites
	for {
		rank, some := least(members)
		if !some {
			return out
		}
		var heads []*oneWrite
		for i, list := range members {
			if len(list) > 0 && dbsqlc.SetRank(list[0].query.SQL) == rank {
				heads, members[i] = append(heads, list[0]), list[1:]
			}
		}
		if rank == dbsqlc.NoSet || len(heads) == 1 {
			for _, a := range heads {
				out = append(out, &sameWrites{sql: a.query.SQL, args: a.query.Arguments, asked: []*oneWrite{a}})
			}
			continue
		}
		out = append(out, concat(rank, heads))
	}
}

// least is the lowest rank of all statements that come next.
func least(members [][]*oneWrite) (rank int, some bool) {
	for _, list := range members {
		if len(list) == 0 {
			continue
		}
		if r := dbsqlc.SetRank(list[0].query.SQL); !some || r < rank {
			rank, some = r, true
		}
	}
	return rank, some
}

// concat makes one statement of several that differ in their arguments alone.
func concat(rank int, list []*oneWrite) *sameWrites {
	s := &sameWrites{asked: list}
	s.sql, s.numbered = dbsqlc.SetOf(rank)
	columns := make([]reflect.Value, len(list[0].query.Arguments))
	for _, a := range list {
		rows := rowsOf(a.query.Arguments)
		for i, arg := range a.query.Arguments {
			columns[i] = appended(columns[i], arg, rows)
		}
	}
	for _, c := range columns {
		s.args = append(s.args, c.Interface())
	}
	if s.numbered {
		numbers := make([]int32, len(list))
		for i := range numbers {
			numbers[i] = int32(i)
		}
		s.args = append(s.args, numbers)
	}
	return s
}

// rowsOf is how many rows a statement is about: one, or as many as the arrays among its arguments are long.
func rowsOf(args []any) int {
	for _, arg := range args {
		if isArray(arg) {
			return reflect.ValueOf(arg).Len()
		}
	}
	return 1
}

func isArray(arg any) bool {
	_, bytes := arg.([]byte)
	return !bytes && reflect.TypeOf(arg).Kind() == reflect.Slice
}

// appended adds an argument to its column: an array as it is, anything else once for each row.
func appended(column reflect.Value, arg any, rows int) reflect.Value {
	v := reflect.ValueOf(arg)
	if isArray(arg) {
		if !column.IsValid() {
			column = reflect.MakeSlice(v.Type(), 0, rows)
		}
		return reflect.AppendSlice(column, v)
	}
	if !column.IsValid() {
		column = reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, rows)
	}
	for range rows {
		column = reflect.Append(column, v)
	}
	return column
}

// read takes the set's answer from the results and sets each statement's result.
func (s *sameWrites) read(results pgx.BatchResults) error {
	if len(s.asked) == 1 {
		tag, err := results.Exec()
		s.asked[0].tag = tag
		return err
	}
	if !s.numbered {
		_, err := results.Exec()
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	for _, n := range found {
		s.asked[n].tag = oneRow
	}
	return err
}

var oneRow = pgconn.NewCommandTag("UPDATE 1")

var errWritesOnly = errors.New("the statement returns nothing")

// Exec implements pgx.BatchResults.
func (w *written) Exec() (pgconn.CommandTag, error) {
	if len(w.list) == 0 {
		return pgconn.CommandTag{}, fmt.Errorf("no more answers: %w", errWritesOnly)
	}
	tag := w.list[0].tag
	w.list = w.list[1:]
	return tag, nil
}

// Query implements pgx.BatchResults.
func (w *written) Query() (pgx.Rows, error) { return nil, errWritesOnly }

// QueryRow implements pgx.BatchResults.
func (w *written) QueryRow() pgx.Row { return noRow{errWritesOnly} }

// Close implements pgx.BatchResults.
func (w *written) Close() error { return nil }

// noRow is the answer to a statement that was not made.
type noRow struct{ why error }

// Scan implements pgx.Row.
func (r noRow) Scan(...any) error { return r.why }

// Tx implements pgx.BatchResults.
func (w *written) Tx() pgx.Tx { return nil }
