package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	storeschema "github.com/ingot-metal/ingot/controller/store/schema"
)

// A newer program has migrated; this one runs on its schema until one of the newer migrations says that it needs more.
func TestAProgramThatIsTooOldIsRefused(t *testing.T) {
	s := empty(t)
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	newest, err := storeschema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	both := map[string]error{}
	ask := func(version, needs int) {
		run(t, s, fmt.Sprintf("UPDATE schema_version SET version = %d, needs = %d", version, needs))
		both = map[string]error{"migrate": s.Schema.MigrateUp(t.Context()), "check": s.Schema.CheckProgram(t.Context())}
	}
	ask(newest+5, newest)
	for what, err := range both {
		if err != nil {
			t.Errorf("%s on a newer schema that needs no more: %v", what, err)
		}
	}
	ask(newest+5, newest+1)
	for what, err := range both {
		var old *storeschema.OldProgramError
		if !errors.As(err, &old) ||
			*old != (storeschema.OldProgramError{Version: newest + 5, Needs: newest + 1, Knows: newest}) {
			t.Errorf("%s on a schema that needs more: %v", what, err)
		} else if !strings.Contains(
			err.Error(),
			"install the newer ingot-controller",
		) {
			t.Errorf("%s names no next step: %v", what, err)
		}
	}
	if v, err := s.Schema.SchemaVersion(t.Context()); err != nil || v != newest+5 {
		t.Errorf("the refusal left version %d, %v", v, err)
	}
}

// Programs before this one wrote a table without the column.
func TestASchemaVersionOfAnOlderProgramNeedsNothing(t *testing.T) {
	s := empty(t)
	if err := s.Schema.CheckProgram(t.Context()); err != nil {
		t.Errorf("an empty database: %v", err)
	}
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, s, "ALTER TABLE schema_version DROP COLUMN needs")
	if err := s.Schema.CheckProgram(t.Context()); err != nil {
		t.Errorf("without the column: %v", err)
	}
	newest, err := storeschema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	// As older programs do.
	run(t, s, fmt.Sprintf("DELETE FROM schema_version; INSERT INTO schema_version VALUES (%d)", newest))
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Errorf("migrate after an older program: %v", err)
	}
}
