package schema_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	migrate "github.com/ingot-metal/ingot/controller/store/schema"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestAServerThatIsTooOldIsRefused: the server of the tests is migrated or, where it lacks what the migrations use,
// refused by name before anything is made. `make test-postgres` runs it on an old one.
func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	url := testkit.EmptyDatabase(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var version int
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := s.Schema.MigrateUp(t.Context())
	made, err := s.Schema.Relations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if old := version < migrate.OldestServer; errors.Is(refused, migrate.ErrServerTooOld) != old ||
		!old && refused != nil ||
		(len(made) == 0) != old {
		t.Errorf("PostgreSQL %d: %v, with %v", version, refused, made)
	}
}
