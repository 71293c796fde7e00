package pgfailure_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/ingot-metal/ingot/internal/failure"
	_ "github.com/ingot-metal/ingot/internal/failure/pgfailure"
)

func TestSQLStates(t *testing.T) {
	cases := map[string]bool{
		"08006": true, "08001": true, // connection failure
		"53300": true, "53100": true, // too many connections, disk full
		"57P01": true, "57P02": true, "57P03": true, // admin shutdown, crash shutdown, starting up
		"25006": true,  // read only: no longer the primary
		"57014": false, // query canceled
		"23505": false, // unique violation
		"42P01": false, // undefined table
		"40001": false, // serialization failure
		"":      false,
	}
	for code, want := range cases {
		err := fmt.Errorf("insert operation: %w", &pgconn.PgError{Code: code})
		if got := failure.ReasonOf(err) == "DATABASE_UNAVAILABLE"; got != want {
			t.Errorf("%q: unavailable %v", code, got)
		}
		if want && !failure.Retryable(err) {
			t.Errorf("%q is not retryable", code)
		}
	}
}

// closedPort is a port of the loopback without a listener.
func closedPort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestRefusedConnection(t *testing.T) {
	_, err := pgconn.Connect(t.Context(), fmt.Sprintf("host=127.0.0.1 port=%d user=x", closedPort(t)))
	if e := failure.From(err); e.Kind != failure.KindUnavailable || !errors.Is(e, err) {
		t.Fatalf("%v became %+v", err, e)
	}
}

func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := pgconn.ParseConfig(fmt.Sprintf("host=127.0.0.1 port=%d user=x sslmode=disable",
		l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnectTimeout = 50 * time.Millisecond
	_, err = pgconn.ConnectConfig(t.Context(), cfg)
	if got := failure.KindOf(err); got != failure.KindUnavailable {
		t.Fatalf("%v is %v", err, got)
	}
}

func TestCallerWhoGaveUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pgconn.Connect(ctx, fmt.Sprintf("host=127.0.0.1 port=%d user=x", closedPort(t)))
	if got := failure.KindOf(err); got != failure.KindCanceled {
		t.Fatalf("%v is %v", err, got)
	}
}

func TestPoolAndForeignErrors(t *testing.T) {
	if !failure.HasReason(failure.From(fmt.Errorf("acquire: %w", puddle.ErrClosedPool)), "DATABASE_UNAVAILABLE") {
		t.Error("a closed pool is not unavailable")
	}
	if !failure.HasReason(failure.From(pgconn.ErrConnClosed), "DATABASE_UNAVAILABLE") {
		t.Error("a closed connection is not unavailable")
	}
	foreign := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	if got := failure.KindOf(foreign); got != failure.KindInternal {
		t.Errorf("a network error of other code is %v", got)
	}
}
