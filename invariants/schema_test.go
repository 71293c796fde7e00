package invariants

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The migrations are text; what counts is what a database has after them, the job queue's tables included.
func TestNoMigratedColumnLooksPersonal(t *testing.T) {
	url := testkit.EmptyDatabase(t)
	s, err := store.New(t.Context(), store.Config{URL: url, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	defer s.Pool().Close()
	if err := s.MigrateUp(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	columns := columnsOfDatabase(t, url)
	if len(columns) < 100 {
		t.Fatalf("found %d columns: this is not the whole schema", len(columns))
	}
	holdNothingPersonal(t, columns)
}

func columnsOfDatabase(t *testing.T, url string) []column {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatalf("read schema: %v", err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (column, error) {
		var c column
		err := row.Scan(&c.table, &c.name)
		return c, err
	})
	if err != nil {
		t.Fatalf("read schema: %v", err)
	}
	return columns
}
