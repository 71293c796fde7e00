package dbsqlc

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// recorder keeps the statements that generated code sends.
type recorder struct {
	DBTX
	sql  string
	args []any
}

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.sql, r.args = sql, args
	return pgconn.NewCommandTag("UPDATE 1"), nil
}

// filled sets each field of a row to a value of its own; arrays have three elements.
func filled(row reflect.Value, from int) {
	for i := range row.NumField() {
		fill(row.Field(i), from+10*i)
	}
}

func fill(f reflect.Value, n int) {
	switch {
	case f.Type() == reflect.TypeFor[time.Time]():
		f.Set(reflect.ValueOf(time.Unix(int64(n), 0)))
	case f.Kind() == reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
		fill(f.Elem(), n)
	case f.Kind() == reflect.String:
		f.SetString(strconv.Itoa(n))
	case f.CanInt():
		f.SetInt(int64(n))
	case f.Kind() == reflect.Bool:
		f.SetBool(n%20 == 0)
	case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Uint8:
		f.SetBytes([]byte(strconv.Itoa(n)))
	case f.Kind() == reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 3, 3))
		for i := range 3 {
			fill(f.Index(i), n+i)
		}
	default:
		panic("a parameter of type " + f.Type().String())
	}
}

// rowsOf returns Writes with two rows of each kind.
func rowsOf() (w Writes) {
	kinds := reflect.ValueOf(&w).Elem()
	for i := range kinds.NumField() {
		kind := kinds.Field(i)
		for n := range 2 {
			row := reflect.New(kind.Type().Elem()).Elem()
			if row.Kind() == reflect.Struct {
				filled(row, 1000*(n+1))
			} else {
				fill(row, 1000*(n+1))
			}
			kind.Set(reflect.Append(kind, row))
		}
	}
	w.Conditions[0].Status, w.Conditions[1].Status = true, false
	return w
}

// TestRowsAreSentAsGeneratedCodeSendsThem compares every statement with what sqlc's function for it sends.
func TestRowsAreSentAsGeneratedCodeSendsThem(t *testing.T) {
	w := rowsOf()
	var want recorder
	q := New(&want)
	ctx := t.Context()
	send := []func(n int) error{
		func(n int) error { return q.InsertOperation(ctx, w.Operations[n]) },
		func(n int) error { return q.InsertSteps(ctx, w.Steps[n]) },
		func(n int) error { return q.SetCurrentOperation(ctx, w.Current[n]) },
		func(n int) error { return q.ApplyToMachine(ctx, w.Machines[n]) },
		func(n int) error { return q.SettleRepeated(ctx, w.Repeated[n]) },
		func(n int) error { return q.Unprovision(ctx, w.Unprovisioned[n]) },
		func(n int) error {
			c := w.Conditions[n]
			if c.Status {
				return q.SetCondition(ctx, c)
			}
			return q.ClearConditionIfSet(ctx, ClearConditionIfSetParams{MachineID: c.MachineID, Type: c.Type,
				Reason: c.Reason, Now: c.Now})
		},
		func(n int) error { _, err := q.AdvanceGrantSeq(ctx, w.GrantNumbers[n]); return err },
		func(n int) error { _, err := q.UpdateCommand(ctx, w.CommandUpdates[n]); return err },
		func(n int) error { return q.InsertCommand(ctx, w.Commands[n]) },
		func(n int) error { return q.UpdateStep(ctx, w.StepUpdates[n]) },
		func(n int) error { _, err := q.UpdateOperation(ctx, w.OperationUpdates[n]); return err },
		func(n int) error { return q.InsertEvents(ctx, w.Events[n]) },
		func(n int) error { return q.MarkPlanUsed(ctx, w.UsedPlans[n]) },
		func(n int) error { return q.RecordAudit(ctx, w.Audit[n]) },
		// sqlc has none for it.
		func(n int) error { _, err := want.Exec(ctx, deleteEvaluatedJobs, w.EvaluatedJobs[n].IDs); return err },
	}
	batch := w.batch(false).QueuedQueries
	if kinds := reflect.TypeFor[Writes]().NumField(); len(send) != kinds || len(batch) != 2*kinds {
		t.Fatalf("%d kinds, %d are compared, %d statements", kinds, len(send), len(batch))
	}
	for i, got := range batch {
		if err := send[i/2](i % 2); err != nil {
			t.Fatal(err)
		}
		if got.SQL != want.sql || !reflect.DeepEqual(got.Arguments, want.args) {
			t.Errorf("got %v of\n%s\nwant %v of\n%s", got.Arguments, got.SQL, want.args, want.sql)
		}
	}
}

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	table     = regexp.MustCompile(`(?:INSERT INTO|UPDATE) (\w+)`)
)

// numbered returns the number of parameters of a statement.
func numbered(sql string) (most int) {
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		n, _ := strconv.Atoi(m[1])
		most = max(most, n)
	}
	return most
}

// TestRowsAreSentTogether compares each statement for many rows with the one for one row: the same table, and an array
// of each parameter in the same order.
func TestRowsAreSentTogether(t *testing.T) {
	w := rowsOf()
	single, together := w.batch(false).QueuedQueries, w.batch(true).QueuedQueries
	pairs := 0
	for _, many := range together {
		i := slices.IndexFunc(single, func(q *pgx.QueuedQuery) bool {
			return table.FindString(q.SQL) == table.FindString(many.SQL) && len(q.Arguments) == len(many.Arguments) &&
				q.SQL != many.SQL
		})
		if !strings.Contains(many.SQL, "unnest") || i < 0 {
			continue
		}
		pairs++
		if numbered(many.SQL) != len(many.Arguments) {
			t.Errorf("%d parameters, and %d in\n%s", len(many.Arguments), numbered(many.SQL), many.SQL)
		}
		for n, arg := range many.Arguments {
			column := reflect.ValueOf(arg)
			if of := reflect.TypeOf(single[i].Arguments[n]); column.Type() != of && column.Type() != reflect.SliceOf(of) {
				t.Errorf("parameter %d is %T and %s in\n%s", n+1, arg, of, many.SQL)
			}
			if want := reflect.ValueOf(together[0].Arguments[0]).Len(); column.Len()%want != 0 {
				t.Errorf("parameter %d has %d rows in\n%s", n+1, column.Len(), many.SQL)
			}
		}
	}
	if pairs != 11 {
		t.Errorf("%d statements for many rows, want 11", pairs)
	}
}

// answers are results of a batch, one a query.
type answers struct {
	pgx.BatchResults
	tags []string
}

func (a *answers) Exec() (pgconn.CommandTag, error) {
	tag := a.tags[0]
	a.tags = a.tags[1:]
	return pgconn.NewCommandTag(tag), nil
}

func (a *answers) Close() error { return nil }

// connection answers each update with its place in the batch.
type connection struct{ DBTX }

func (connection) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	a := &answers{}
	for i := range b.Len() {
		a.tags = append(a.tags, "UPDATE "+strconv.Itoa(i))
	}
	return a
}

// TestTogetherCallsEachFunctionOnce holds that a function goes on with its own answer, and that one that makes no query,
// or two, is refused.
func TestTogetherCallsEachFunctionOnce(t *testing.T) {
	var calls, found []int64
	query := func(i int64) func(*Queries) error {
		return func(q *Queries) error {
			calls = append(calls, i)
			n, err := q.UpdateOperation(t.Context(), UpdateOperationParams{Version: i})
			found = append(found, n)
			return err
		}
	}
	if err := New(connection{}).Together(t.Context(), query(0), query(1), query(2)); err != nil {
		t.Fatal(err)
	}
	want := []int64{0, 1, 2}
	if !slices.Equal(calls, want) || !slices.Equal(found, want) {
		t.Errorf("calls %v, answers %v, want %v of both", calls, found, want)
	}
	twice := func(q *Queries) error { return errors.Join(query(1)(q), query(2)(q)) }
	if err := New(connection{}).Together(t.Context(), query(0), twice); !errors.Is(err, errSecondQuery) {
		t.Errorf("two queries of one function: %v", err)
	}
	none := func(*Queries) error { return nil }
	if err := New(connection{}).Together(t.Context(), query(0), none); err == nil {
		t.Error("a function without a query was taken")
	}
}
