package schema_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// objects lists what a schema is made of, in words.
const objects = `
SELECT 'relation ' || relname || ' ' || relkind::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
    FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'function ' || proname || ' ' || md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE NOT tgisinternal AND c.relnamespace = 'public'::regnamespace
UNION ALL SELECT 'type ' || typname FROM pg_type WHERE typnamespace = 'public'::regnamespace
ORDER BY 1`

func schema(t *testing.T, s *store.Store) []string {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func empty(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{URL: testkit.EmptyDatabase(t), Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestMigrateUpDownUp(t *testing.T) {
	s := empty(t)
	before := schema(t, s)
	if v, err := s.Schema.SchemaVersion(t.Context()); err != nil || v != 0 {
		t.Fatalf("an empty database is at version %d, %v", v, err)
	}
	up := func() []string {
		if err := s.Schema.MigrateUp(t.Context()); err != nil {
			t.Fatalf("up: %v", err)
		}
		return schema(t, s)
	}
	first := up()
	if v, err := s.Schema.SchemaVersion(t.Context()); err != nil || v == 0 || len(first) < 100 {
		t.Fatalf("at version %d with %d objects, %v", v, len(first), err)
	}
	if again := up(); !slices.Equal(first, again) {
		t.Error("migrating up twice changes something")
	}
	if err := s.Schema.MigrateDown(t.Context()); err != nil {
		t.Fatalf("down: %v", err)
	}
	if left := schema(t, s); !slices.Equal(left, before) {
		t.Errorf("down leaves %q", left)
	}
	if second := up(); !slices.Equal(first, second) {
		t.Errorf("up after down gives %q, before it was %q", second, first)
	}
}

func TestControllersThatMigrateTogether(t *testing.T) {
	s := empty(t)
	for _, err := range storetest.Together(t, 6, func(ctx context.Context, _ int) error { return s.Schema.MigrateUp(ctx) }) {
		if err != nil {
			t.Error(err)
		}
	}
}
