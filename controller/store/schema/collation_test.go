package schema_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestTextIsComparedByItsBytes migrates a database of another collation, and looks at every column and every index:
// the order of text must not change with a library of the server.
func TestTextIsComparedByItsBytes(t *testing.T) {
	url := testkit.EmptyDatabase(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	name := conn.Config().Database
	icu := name + "_icu"
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+icu+
		" TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-AT'"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := conn.Exec(t.Context(), "DROP DATABASE "+icu+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	}()
	other := strings.Replace(url, name, icu, 1)
	s, err := store.New(t.Context(), store.Config{URL: other})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := s.DB.Pool().Query(t.Context(), `
		SELECT a.attrelid::regclass || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
		LEFT JOIN pg_am am ON am.oid = c.relam
		WHERE c.relkind IN ('r', 'p', 'i', 'I') AND am.amname IS DISTINCT FROM 'hash' AND c.relname NOT LIKE 'river\_%' AND NOT a.attisdropped
		  AND a.attcollation NOT IN (0, 'pg_catalog."C"'::regcollation) ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range wrong {
		t.Errorf("%s is compared as the server's libraries have it, not by its bytes", column)
	}
}
