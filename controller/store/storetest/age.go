package storetest

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
)

// Age makes the current step of an operation as old as if it had begun so much earlier.
func Age(t testing.TB, s *store.Store, operationID string, by time.Duration) {
	t.Helper()
	_, err := s.DB.Pool().Exec(t.Context(), `UPDATE operation_steps SET started_at = started_at - $2 * interval '1 second'
		WHERE operation_id = $1 AND state = 'RUNNING'`, operationID, by.Seconds())
	if err != nil {
		t.Fatal(err)
	}
}

// ForgetAuthorities makes the database one from before the first rotation of the CA.
func ForgetAuthorities(t testing.TB, s *store.Store) {
	t.Helper()
	if _, err := s.DB.Pool().Exec(t.Context(), `DELETE FROM certificate_authorities`); err != nil {
		t.Fatal(err)
	}
}
