package testkit

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// EnvDatabaseURL names a server on which tests may make and drop databases.
const EnvDatabaseURL = "INGOT_TEST_DATABASE_URL"

// EnvOwnDatabaseURL names a server that is there for one process of tests at a time; see OwnServer.
const EnvOwnDatabaseURL = "INGOT_TEST_OWN_DATABASE_URL"

// databaseNumber makes names unique within the process; the pid does among processes.
var databaseNumber atomic.Int64

// Database returns the URL of a new database for the test, made from a template with the registered migrations applied.
// It drops the database at the end, unless OwnServer was called.
func Database(t testing.TB) string {
	t.Helper()
	admin := server(t)
	template, err := migratedTemplate(t.Context(), admin)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	return create(t, admin, template)
}

// EmptyDatabase returns the URL of a new empty database, for testing migrations.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return create(t, server(t), "template0")
}

func create(t testing.TB, admin, template string) string {
	t.Helper()
	name := fmt.Sprintf("t_%d_%d", os.Getpid(), databaseNumber.Add(1))
	if err := exec(t.Context(), admin, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template)); err != nil {
		t.Fatalf("testkit: %v", err)
	}
	if !alone.Load() {
		dropAtEnd(t, admin, name)
	}
	u, err := withDatabase(admin, name)
	if err != nil {
		t.Fatalf("testkit: %v", err)
	}
	return u
}

func dropAtEnd(t testing.TB, admin, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := exec(ctx, admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("testkit: %v", err)
		}
	})
}

func withDatabase(rawURL, name string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", fmt.Errorf("%s must be a postgres:// URL", EnvDatabaseURL)
	}
	u.Path = "/" + name
	return u.String(), nil
}

// exec runs statements on a connection of its own.
func exec(ctx context.Context, url, sql string) error {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql).ReadAll()
	closeErr := conn.Close(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return closeErr
}
