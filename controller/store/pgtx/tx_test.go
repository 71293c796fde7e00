package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// opened returns the transactions of a database that has one table of numbers.
func opened(t *testing.T, parameters string) *pgtx.DB {
	t.Helper()
	db, err := pgtx.Open(t.Context(), pgtx.Config{URL: testkit.Database(t) + parameters, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	db.Connected = func(context.Context, *pgx.Conn) error { return nil }
	db.Committed = func([]any) {}
	if _, err := db.Pool().Exec(t.Context(), "CREATE TABLE numbers (n int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func numbers(t *testing.T, db *pgtx.DB) (n int) {
	t.Helper()
	if err := db.Pool().QueryRow(t.Context(), "SELECT count(*) FROM numbers").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// raise has PostgreSQL answer with an error of this code.
func raise(ctx context.Context, tx pgx.Tx, code string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s'; END $$", code))
	return err
}

// A transaction that conflicts with others is tried again, MaxTries times at most; other errors are not.
func TestAConflictIsTriedAgain(t *testing.T) {
	db := opened(t, "")
	for code, tries := range map[string]int{"40001": pgtx.MaxTries, "40P01": pgtx.MaxTries, "23505": 1, "57014": 1} {
		n := 0
		err := db.InTx(t.Context(), func(tx pgx.Tx, _ *dbsqlc.Queries) error {
			n++
			return raise(t.Context(), tx, code)
		})
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != code || n != tries {
			t.Errorf("%s: %d tries, %v", code, n, err)
		}
	}
	n := 0
	if err := db.InTx(t.Context(), func(pgx.Tx, *dbsqlc.Queries) error {
		n++
		return fmt.Errorf("decide: %w", pgtx.ErrLostVersion)
	}); !errors.Is(err, pgtx.ErrLostVersion) || n != pgtx.MaxTries {
		t.Errorf("a lost version: %d tries, %v", n, err)
	}
	n = 0
	if err := db.InTx(t.Context(), func(tx pgx.Tx, _ *dbsqlc.Queries) error {
		if n++; n < pgtx.MaxTries {
			return raise(t.Context(), tx, "40001")
		}
		_, err := tx.Exec(t.Context(), "INSERT INTO numbers VALUES (1)")
		return err
	}); err != nil || numbers(t, db) != 1 {
		t.Errorf("the last try: %v, %d rows", err, numbers(t, db))
	}
}

// A transaction's notes are processed before its commit, and sent once it has committed. Those of a try that was rolled
// back never are.
func TestNotesAreToldAfterTheCommit(t *testing.T) {
	for _, set := range []bool{false, true} {
		db := opened(t, "")
		var told []any
		var fails error
		db.Committed = func(notes []any) {
			if numbers(t, db) == 0 {
				t.Error("told before the commit")
			}
			told = append(told, notes...)
		}
		db.Committing = func(_ context.Context, tx pgx.Tx, notes []any) error {
			if !slices.Equal(notes, []any{"noted"}) {
				t.Errorf("done with it: %v", notes)
			}
			return fails
		}
		write := func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO numbers VALUES (1)")
			return err
		}
		run := func() error {
			if set {
				return db.InSet(t.Context(), func(tx pgx.Tx) ([]*pgtx.Notes, error) {
					a := &pgtx.Member{}
					a.Note("noted")
					return []*pgtx.Notes{&a.Notes, nil}[:1], write(tx)
				})
			}
			return db.InTx(t.Context(), func(tx pgx.Tx, q *dbsqlc.Queries) error {
				pgtx.NotesOf(q).Note("noted")
				return write(tx)
			})
		}
		fails = errors.New("no room for the job")
		if err := run(); !errors.Is(err, fails) || len(told) != 0 || numbers(t, db) != 0 {
			t.Errorf("set %t: %v, told %v, %d rows of what was not committed", set, err, told, numbers(t, db))
		}
		fails = nil
		if err := run(); err != nil || !slices.Equal(told, []any{"noted"}) || numbers(t, db) != 1 {
			t.Errorf("set %t: %v, told %v, %d rows", set, err, told, numbers(t, db))
		}
	}
}

// A member of a set may send nothing of its own: it returns that it must be stored alone.
func TestAMemberOfASetSendsNothing(t *testing.T) {
	q := dbsqlc.New(&pgtx.Member{})
	_, err := q.GetMachine(t.Context(), "m-1")
	_, list := q.ConditionsOf(t.Context(), []string{"m-1"})
	exec := q.SetBootMode(t.Context(), dbsqlc.SetBootModeParams{})
	together := q.Together(t.Context(), func(q *dbsqlc.Queries) error {
		_, err := q.GetMachine(t.Context(), "m-1")
		return err
	})
	for what, err := range map[string]error{"a row": err, "rows": list, "a write": exec, "a batch": together} {
		if !errors.Is(err, pgtx.ErrAlone) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A session's limits are ours unless the URL has its own.
func TestSessionsAreBounded(t *testing.T) {
	show := func(db *pgtx.DB, name string) (value string) {
		t.Helper()
		if err := db.Pool().QueryRow(t.Context(), "SHOW "+name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	db := opened(t, "")
	for name, want := range map[string]string{"idle_in_transaction_session_timeout": "10s", "statement_timeout": "30s",
		"jit": "off", "random_page_cost": "1.1", "application_name": "ingot-controller"} {
		if got := show(db, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// A listener receives the messages for all and those for its controller, each separately, and none of another one's. It
// returns when its connection ends.
func TestAListenerHearsItsOwn(t *testing.T) {
	db := opened(t, "")
	up, heard := make(chan struct{}), make(chan string, 10)
	ended := make(chan error, 1)
	task.Background("listen", func() {
		ended <- db.Listen(t.Context(), "ctl-1", pgtx.Listener{
			Up:         func() { close(up) },
			HandedOver: func(p string) { heard <- "own " + p },
			Announced:  func(p string) { heard <- "all " + p },
		})
	})
	<-up
	for _, n := range [][2]string{{"ingot_to_ctl-2", "x"}, {"ingot_to_ctl-1", "a"}, {pgtx.Everybody, "b"}} {
		if _, err := db.Pool().Exec(t.Context(), "SELECT pg_notify($1, $2)", n[0], n[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"own a", "all b"} {
		if got := <-heard; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	if _, err := db.Pool().Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'ingot-controller-listen' AND datname = current_database()`); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a listener without a connection has no error")
	}
}

// Conditions on a write refuse it with a reason that names the field.
func TestConditionsOfAWrite(t *testing.T) {
	there, none := pgtx.Stored{Exists: true, Version: 4}, pgtx.Stored{}
	for name, c := range map[string]struct {
		opts   []pgtx.WriteOption
		stored pgtx.Stored
		reason string
	}{
		"none":                        {nil, there, ""},
		"the version":                 {[]pgtx.WriteOption{pgtx.Expect(4)}, there, ""},
		"no version":                  {[]pgtx.WriteOption{pgtx.Expect(0)}, there, ""},
		"another version":             {[]pgtx.WriteOption{pgtx.Expect(3)}, there, "VERSION_CONFLICT"},
		"a version of what is gone":   {[]pgtx.WriteOption{pgtx.ExpectRead(3)}, none, "VERSION_CONFLICT"},
		"a creation":                  {[]pgtx.WriteOption{pgtx.CreateOnly()}, none, ""},
		"a creation of what is there": {[]pgtx.WriteOption{pgtx.CreateOnly()}, there, "TAKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			err := pgtx.ConditionsOf(c.opts).Check("it", "TAKEN", c.stored)
			if c.reason == "" && err != nil {
				t.Error(err)
			}
			if c.reason != "" {
				storetest.WantReason(t, err, c.reason)
			}
		})
	}
	if err := pgtx.ConditionsOf([]pgtx.WriteOption{pgtx.CreateOnly()}).Replacing("it", 1); err != nil {
		t.Error(err)
	}
	err := pgtx.ConditionsOf([]pgtx.WriteOption{pgtx.CreateOnly()}).Replacing("it", 2)
	storetest.WantReason(t, err, pgtx.ResourceExists)
}

// A time that was waited for is added, in whole microseconds; a clock that went back adds nothing.
func TestLaterAddsWhatHasPassed(t *testing.T) {
	asked := time.Now()
	db := &pgtx.DB{Now: func() time.Time { return asked.Add(1500 * time.Nanosecond) }}
	if got := db.Later(asked, asked); !got.Equal(asked.Add(time.Microsecond)) {
		t.Errorf("%v", got.Sub(asked))
	}
	db.Now = func() time.Time { return asked.Add(-time.Hour) }
	if got := db.Later(asked, asked); !got.Equal(asked) {
		t.Errorf("%v", got.Sub(asked))
	}
}
