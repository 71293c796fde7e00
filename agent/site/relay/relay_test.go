package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// echo is a controller that sends everything back, and ends when the other side does.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, _ := task.New(t.Context())
	g.Go("accept", func(context.Context) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			g.Go("echo", func(context.Context) error {
				_, err := io.Copy(c, c)
				return errors.Join(ignoreReset(err), c.Close())
			})
		}
	})
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), g.Wait()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func ignoreReset(err error) error {
	if err != nil && strings.Contains(err.Error(), "reset") {
		return nil
	}
	return err
}

// serve runs a relay to the addresses and returns its own.
func serve(t *testing.T, cfg Config, allowed ...string) (*Relay, string) {
	t.Helper()
	cfg.Log = testkit.Logger(t)
	cfg.Allowed = func(to string) bool {
		for _, a := range allowed {
			if a == to {
				return true
			}
		}
		return false
	}
	r := New(cfg)
	s := httptest.NewServer(r)
	t.Cleanup(func() {
		r.Close()
		s.Close()
	})
	return r, s.Listener.Addr().String()
}

// connect asks for a connection and returns it with the status.
func connect(t *testing.T, relay, to string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	c, err := net.Dial("tcp", relay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // closed before, in most cases
	// The first bytes for the controller come with the request.
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nearly ", to, to); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it is empty
	return c, r, resp.StatusCode
}

const soon = 10 * time.Second

func TestBothWaysToTheEnd(t *testing.T) {
	t.Parallel()
	to := echo(t)
	relay, at := serve(t, Config{}, to)
	c, r, status := connect(t, at, to)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	big := strings.Repeat("0123456789", 100_000)
	g, _ := task.New(t.Context())
	g.Go("send", func(context.Context) error {
		_, err := io.WriteString(c, big)
		return errors.Join(err, c.(*net.TCPConn).CloseWrite())
	})
	got, err := io.ReadAll(r)
	if err = errors.Join(err, g.Wait()); err != nil || string(got) != "early "+big {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	testkit.Eventually(t, soon, func() bool { return relay.Open() == 0 }, "%d connections stay", relay.Open())
}

func TestOnlyWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	to := echo(t)
	gone := "127.0.0.1:1"
	_, at := serve(t, Config{}, to, gone)
	_, port, err := net.SplitHostPort(to)
	if err != nil {
		t.Fatal(err)
	}
	for other, want := range map[string]int{
		"127.0.0.1:22": http.StatusForbidden, "localhost:" + port: http.StatusForbidden, "127.1:" +
			port: http.StatusForbidden,
		"127.0.0.1.:" + port: http.StatusForbidden, gone: http.StatusBadGateway,
	} {
		if _, _, status := connect(t, at, other); status != want {
			t.Errorf("%s: %d, want %d", other, status, want)
		}
	}
}

func TestOneMachineCannotTakeAllPlaces(t *testing.T) {
	t.Parallel()
	to := echo(t)
	relay, at := serve(t, Config{PerMachine: 2}, to)
	first, _, _ := connect(t, at, to)
	connect(t, at, to)
	if _, _, status := connect(t, at, to); status != http.StatusTooManyRequests {
		t.Errorf("a third connection: %d", status)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, func() bool { return relay.Open() == 1 }, "a closed connection keeps its place")
	if _, _, status := connect(t, at, to); status != http.StatusOK {
		t.Errorf("after one has ended: %d", status)
	}
}

func TestAnIdleConnectionEnds(t *testing.T) {
	t.Parallel()
	to := echo(t)
	relay, at := serve(t, Config{Idle: 50 * time.Millisecond}, to)
	_, r, status := connect(t, at, to)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if _, err := io.Copy(io.Discard, r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	testkit.Eventually(t, soon, func() bool { return relay.Open() == 0 }, "it stays")
}

func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	to := echo(t)
	relay, at := serve(t, Config{}, to)
	_, r, _ := connect(t, at, to)
	relay.Close()
	if _, err := io.Copy(io.Discard, r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	if _, _, status := connect(t, at, to); status != http.StatusTooManyRequests {
		t.Errorf("after Close: %d", status)
	}
}
