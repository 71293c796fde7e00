// Package storetest gives tests a store on a real, migrated PostgreSQL.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/migrations"
)

// Tests that want a migrated database need only import this package.
func init() { testkit.RegisterMigrate(migrations.Files, migrate) }

func migrate(ctx context.Context, url string) error {
	s, err := store.New(ctx, store.Config{URL: url})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Schema.MigrateUp(ctx)
}

// New gives the test a store on a database of its own, migrated and with the built-in plans.
func New(t testing.TB) *store.Store {
	t.Helper()
	return With(t, store.Config{})
}

// With is New with a configuration; its URL and logger are filled where they are empty.
func With(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	if c.URL == "" {
		c.URL = testkit.Database(t)
	}
	s := open(t, c)
	if err := s.Catalog.SeedPlans(t.Context(), time.Now()); err != nil {
		t.Fatalf("seed plans: %v", err)
	}
	return s
}

// open returns a store over a database as it is.
func open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	if c.Logger == nil {
		c.Logger = testkit.Logger(t)
	}
	s, err := store.New(t.Context(), c)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}
