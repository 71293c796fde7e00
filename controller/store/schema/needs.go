package schema

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// needsMark begins the first line of a migration that takes away what older programs use. Behind it is the number of
// the migration that a program must know at least, to run on the schema from there on.
const needsMark = "-- needs: "

// OldProgramError is returned when the schema no longer has the tables that this program uses.
type OldProgramError struct {
	// Version is the schema's. A program on it must know the migration Needs; this one knows those up to Knows.
	Version, Needs, Knows int
}

func (e *OldProgramError) Error() string {
	return fmt.Sprintf("the schema is at version %d and needs a program that knows version %d; this one knows %d: "+
		"install the newer ingot-controller again", e.Version, e.Needs, e.Knows)
}

// CheckProgram is an *OldProgramError where this program may not run on the schema.
func (s *Store) CheckProgram(ctx context.Context) error {
	knows, err := Newest()
	if err != nil {
		return err
	}
	have, err := s.SchemaVersion(ctx)
	if err != nil || have == 0 {
		return err
	}
	return refuseOlder(ctx, s.db.Pool(), knows)
}

func refuseOlder(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, knows int,
) error {
	e := OldProgramError{Knows: knows}
	// A table that no program of today has touched lacks the column.
	err := db.QueryRow(ctx, "SELECT coalesce(max(version), 0), coalesce(max((to_jsonb(v) ->> 'needs')::integer), 0) "+
		"FROM schema_version v").Scan(&e.Version, &e.Needs)
	if err != nil {
		return fmt.Errorf("read what the schema needs: %w", err)
	}
	if e.Needs > e.Knows {
		return &e
	}
	return nil
}

// needsOf reads the first line of a migration.
func needsOf(sql string) (int, error) {
	line, _, _ := strings.Cut(sql, "\n")
	number, found := strings.CutPrefix(line, needsMark)
	if !found {
		return 0, nil
	}
	return strconv.Atoi(number)
}

// needsAt is what a schema of this version needs.
func needsAt(all []migration, version int) int {
	needs := 0
	for _, m := range all[:version] {
		needs = max(needs, m.needs)
	}
	return needs
}
