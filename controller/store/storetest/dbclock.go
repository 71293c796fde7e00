package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Clocks are the clock of a database and that of its controllers, which move together where a test advances them.
type Clocks struct {
	*clock.Fake
	t     testing.TB
	store *store.Store
}

// NewWithClock returns a store on a database whose clock can be advanced, migrated and with the built-in plans. The
// database's own time goes on meanwhile: a few seconds of a test are not exact.
func NewWithClock(t testing.TB) (*store.Store, *Clocks) {
	t.Helper()
	url := testkit.EmptyDatabase(t)
	before := open(t, store.Config{URL: url})
	Exec(t, before, `CREATE SCHEMA test_clock`)
	Exec(t, before, `CREATE TABLE test_clock.ahead (by interval NOT NULL)`)
	Exec(t, before, `INSERT INTO test_clock.ahead VALUES ('0')`)
	for name, volatility := range map[string]string{
		"now": "STABLE", "transaction_timestamp": "STABLE", "statement_timestamp": "STABLE", "clock_timestamp": "VOLATILE",
	} {
		Exec(t, before, `CREATE FUNCTION test_clock.`+name+`() RETURNS timestamptz LANGUAGE sql `+volatility+
			` AS 'SELECT pg_catalog.`+name+`() + (SELECT by FROM test_clock.ahead)'`)
	}
	// Statements find these functions before the server's own.
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	url += separator + "search_path=public,test_clock,pg_catalog"
	s := open(t, store.Config{URL: url})
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	if err := s.Catalog.SeedPlans(t.Context(), time.Now()); err != nil {
		t.Fatalf("seed plans: %v", err)
	}
	now, err := s.Sessions.Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, &Clocks{Fake: clock.NewFake(now), t: t, store: s}
}

// Advance moves both clocks.
func (c *Clocks) Advance(d time.Duration) {
	c.t.Helper()
	c.StepDatabase(d)
	c.Fake.Advance(d)
}

// StepDatabase steps the clock of the database alone, as if the clocks of all other machines were stepped the other way.
func (c *Clocks) StepDatabase(d time.Duration) {
	c.t.Helper()
	if err := ExecSQL(c.t, c.store, `UPDATE test_clock.ahead SET by = by + $1::interval`, d); err != nil {
		c.t.Fatal(err)
	}
}
