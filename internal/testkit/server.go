package testkit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
)

// ServerSettings are for many small databases and many pools. fsync stays on: tests are about durability.
func ServerSettings() map[string]string {
	return map[string]string{
		"max_connections": "500", "shared_buffers": "64MB", "wal_level": "minimal", "max_wal_senders": "0",
		"checkpoint_timeout": "30min", "max_wal_size": "1GB", "max_prepared_transactions": "0",
	}
}

// own is the private server of this process.
var own struct {
	sync.Mutex
	cluster *localpg.Cluster
	err     error
}

// OwnServer has this process use a private server, even where there is one for many processes. What others do on a
// server holds back the feeds of all its databases: to drop a database takes a transaction that lasts as long as a
// checkpoint. Databases are not dropped: they end with the server. It must be called before the first database is made.
// Where EnvOwnDatabaseURL names a server, that one is the private one.
func OwnServer() error {
	alone.Store(true)
	if u := os.Getenv(EnvOwnDatabaseURL); u != "" {
		return os.Setenv(EnvDatabaseURL, u)
	}
	return os.Unsetenv(EnvDatabaseURL)
}

// alone is set when OwnServer was called.
var alone atomic.Bool

// server returns the URL of a server on which databases may be made.
func server(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(EnvDatabaseURL); u != "" {
		return u
	}
	own.Lock()
	defer own.Unlock()
	if own.cluster == nil && own.err == nil {
		own.cluster, own.err = StartServer()
	}
	if own.err != nil {
		t.Fatalf("testkit: %v", own.err)
	}
	return own.cluster.URL(localpg.Database)
}

// StartServer starts a private server that ends with this process at the latest.
func StartServer() (*localpg.Cluster, error) {
	dir, err := os.MkdirTemp(memory(), "ingot-testpg-")
	if err != nil {
		return nil, err
	}
	c, err := localpg.Open(context.Background(), localpg.Config{
		Dir: dir, Settings: ServerSettings(), Ephemeral: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		_ = os.RemoveAll(dir) // the error that matters is the other one
		return nil, err
	}
	return c, nil
}

// Main runs the tests and then stops the private server, if one was started, in peace. TestMain may call it; without
// it the server ends all the same, just after the process.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do before it exits with the code given.
func Run(m *testing.M) int {
	code := m.Run()
	if err := stopOwn(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	return code
}

func stopOwn() error {
	own.Lock()
	defer own.Unlock()
	if own.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := own.cluster
	own.cluster = nil
	return c.Stop(ctx)
}
