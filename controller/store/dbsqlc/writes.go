package dbsqlc

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
)

// Writes are the rows that changes write, by statement. Send writes them, each row by a statement of its own;
// SendTogether writes all rows of a kind by one statement, for changes of different machines. Both take one round trip,
// and write the kinds in the order of the fields.
type Writes struct {
	Operations       []InsertOperationParams
	Steps            []InsertStepsParams
	Current          []SetCurrentOperationParams
	Machines         []ApplyToMachineParams
	Repeated         []string // commands
	Unprovisioned    []string // machines
	Conditions       []SetConditionParams
	GrantNumbers     []AdvanceGrantSeqParams
	CommandUpdates   []UpdateCommandParams
	Commands         []InsertCommandParams
	StepUpdates      []UpdateStepParams
	OperationUpdates []UpdateOperationParams
	Events           []InsertEventsParams
	UsedPlans        []MarkPlanUsedParams
	Audit            []RecordAuditParams
	EvaluatedJobs    []DeleteEvaluatedJobsParams
}

// DeleteEvaluatedJobsParams names jobs of operations that were evaluated.
type DeleteEvaluatedJobsParams struct{ IDs []int64 }

// deleteEvaluatedJobs leaves a job alone that another transaction works on: it runs, and changes nothing. The table is
// River's, which sqlc does not know.
const deleteEvaluatedJobs = `DELETE FROM river_job WHERE id IN (
	SELECT id FROM river_job WHERE id = ANY($1::bigint[]) AND state = 'scheduled' FOR UPDATE SKIP LOCKED)`

// ErrRowChanged reports a row that is not stored any more as it was read: a transaction between the two has changed it.
var ErrRowChanged = errors.New("the operation has changed meanwhile")

// statement writes rows of a kind. many takes arrays of the parameters of one, in the same order; it is empty where the
// kind is rare.
type statement struct {
	what, one, many string
	// counted reports that each row must be found as it was read.
	counted bool
}

// batch queues all rows.
func (w *Writes) batch(together bool) *pgx.Batch {
	b := &writeBatch{together: together}
	queue(b, statement{what: "insert operation", one: insertOperation, many: insertOperations}, w.Operations)
	queue(b, statement{what: "insert steps", one: insertSteps, many: insertStepsOfMany}, w.Steps)
	queue(b, statement{what: "point the machine to its operation", one: setCurrentOperation, many: setCurrentOperations},
		w.Current)
	queue(b, statement{what: "update machine", one: applyToMachine, many: applyToMachines}, w.Machines)
	queue(b, statement{what: "settle the repeated command", one: settleRepeated}, w.Repeated)
	queue(b, statement{what: "forget the image on the disk", one: unprovision}, w.Unprovisioned)
	for _, c := range w.Conditions {
		if c.Status {
			queue(b, statement{what: "set condition " + c.Type, one: setCondition}, []SetConditionParams{c})
			continue
		}
		queue(b, statement{what: "clear condition " + c.Type, one: clearConditionIfSet}, []ClearConditionIfSetParams{
			{Reason: c.Reason, Now: c.Now, MachineID: c.MachineID, Type: c.Type},
		})
	}
	queue(b, statement{what: "count grant", one: advanceGrantSeq, many: advanceGrantSeqs, counted: true}, w.GrantNumbers)
	queue(b, statement{what: "update command", one: updateCommand, many: updateCommands, counted: true}, w.CommandUpdates)
	queue(b, statement{what: "insert command", one: insertCommand, many: insertCommands}, w.Commands)
	queue(b, statement{what: "update step", one: updateStep, many: updateSteps}, w.StepUpdates)
	queue(b, statement{what: "update operation", one: updateOperation, many: updateOperations, counted: true},
		w.OperationUpdates)
	queue(b, statement{what: "insert events", one: insertEvents, many: insertEventsOfMany}, w.Events)
	queue(b, statement{what: "mark plan as used", one: markPlanUsed}, w.UsedPlans)
	queue(b, statement{what: "write audit log", one: recordAudit, many: recordAudits}, w.Audit)
	queue(b, statement{what: "delete jobs of evaluated operations", one: deleteEvaluatedJobs, many: deleteEvaluatedJobs},
		w.EvaluatedJobs)
	return &b.Batch
}

// Append adds the rows of another change.
func (w *Writes) Append(o Writes) {
	to, from := reflect.ValueOf(w).Elem(), reflect.ValueOf(o)
	for i := range to.NumField() {
		to.Field(i).Set(reflect.AppendSlice(to.Field(i), from.Field(i)))
	}
}

// Send writes the rows of one change. It returns ErrRowChanged where a row is not as it was read.
func (q *Queries) Send(ctx context.Context, w Writes) error { return q.send(ctx, w.batch(false)) }

// SendTogether is Send for changes of different machines, in a transaction of theirs.
func (q *Queries) SendTogether(ctx context.Context, w Writes) error {
	return q.send(ctx, w.batch(true))
}

func (q *Queries) send(ctx context.Context, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	db, err := q.batcher()
	if err != nil {
		return err
	}
	return db.SendBatch(ctx, b).Close()
}

type writeBatch struct {
	pgx.Batch
	together bool
}

// queue adds rows of a kind to the batch.
func queue[P any](b *writeBatch, s statement, rows []P) {
	switch {
	case len(rows) == 0:
	case len(rows) > 1 && b.together && s.many != "":
		b.add(s, s.many, columns(rows), len(rows))
	default:
		for _, r := range rows {
			b.add(s, s.one, parameters(reflect.ValueOf(r)), 1)
		}
	}
}

// add queues a statement that writes rows.
func (b *writeBatch) add(s statement, sql string, args []any, rows int) {
	b.Queue(sql, args...).Fn = func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		if err == nil && s.counted && tag.RowsAffected() != int64(rows) {
			err = ErrRowChanged
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		return nil
	}
}

// parameters returns the parameters of a statement: sqlc orders the fields by their numbers.
func parameters(row reflect.Value) []any {
	if row.Kind() != reflect.Struct {
		return []any{row.Interface()}
	}
	args := make([]any, row.NumField())
	for i := range args {
		args[i] = row.Field(i).Interface()
	}
	return args
}

// columns returns the parameters of the statement for many rows: an array each. A row with arrays is as many rows as
// they are long.
func columns[P any](rows []P) []any {
	of := reflect.TypeFor[P]()
	columns := make([]reflect.Value, of.NumField())
	for i := range columns {
		t := of.Field(i).Type
		if !isArray(t) {
			t = reflect.SliceOf(t)
		}
		columns[i] = reflect.MakeSlice(t, 0, len(rows))
	}
	for _, r := range rows {
		row := reflect.ValueOf(r)
		n := length(row)
		for i, c := range columns {
			if f := row.Field(i); isArray(f.Type()) {
				columns[i] = reflect.AppendSlice(c, f)
			} else {
				for range n {
					columns[i] = reflect.Append(columns[i], f)
				}
			}
		}
	}
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = c.Interface()
	}
	return args
}

// length returns the number of rows that a struct of parameters describes.
func length(row reflect.Value) int {
	for i := range row.NumField() {
		if f := row.Field(i); isArray(f.Type()) {
			return f.Len()
		}
	}
	return 1
}

// isArray reports whether a parameter is an array in SQL; bytes are one value.
func isArray(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}
