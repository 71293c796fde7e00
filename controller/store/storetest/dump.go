package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
)

// Dump is every row of the tables, with byte columns as text: for tests of what must not be stored.
func Dump(t testing.TB, s *store.Store, tables ...string) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables {
		rows, err := s.DB.Pool().Query(t.Context(), "SELECT * FROM "+pgx.Identifier{table}.Sanitize())
		if err != nil {
			t.Fatalf("read %s: %v", table, err)
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				t.Fatalf("read %s: %v", table, err)
			}
			for _, v := range values {
				if raw, ok := v.([]byte); ok {
					v = string(raw)
				}
				fmt.Fprintf(&all, "%s: %v\n", table, v)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("read %s: %v", table, err)
		}
	}
	return all.String()
}
