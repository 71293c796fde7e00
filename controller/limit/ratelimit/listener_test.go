package ratelimit_test

import (
	"context"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// visitors opens connections to a bounded listener without TLS.
type visitors struct {
	t *testing.T
	l *ratelimit.Listener
}

func newVisitors(t *testing.T, c ratelimit.ListenerConfig) visitors {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := visitors{t, ratelimit.Listen(raw, c)}
	accepted := make(chan net.Conn, 100)
	task.Background("accept", func() {
		defer close(accepted)
		for {
			conn, err := v.l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	})
	t.Cleanup(func() {
		_ = v.l.Close()
		for conn := range accepted {
			_ = conn.Close()
		}
	})
	return v
}

// come opens a connection from an address of 127/8, sends a byte where speaks, and returns the context of a call on it.
func (v visitors) come(from string, speaks bool) (net.Conn, context.Context) {
	v.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", v.l.Addr().String())
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = conn.Close() })
	if speaks {
		if _, err := conn.Write([]byte("x")); err != nil {
			v.t.Fatal(err)
		}
	}
	return conn, peer.NewContext(v.t.Context(), &peer.Peer{Addr: conn.LocalAddr()})
}

func (v visitors) counts(open, unproven int) {
	v.t.Helper()
	testkit.Eventually(v.t, soon, func() bool {
		o, u := v.l.Counts()
		return o == open && u == unproven
	}, "not %d open and %d unproven", open, unproven)
}

// closed waits for the other side's end of a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("read %d bytes of a connection that should be closed", n)
	} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Fatal("the connection is open")
	}
}

// soon is long, for machines that are busy.
const soon = 30 * time.Second

func plenty() ratelimit.ConnectionLimits {
	return ratelimit.ConnectionLimits{All: 100, Unproven: 100, PerAddress: 100, PerCaller: 100}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	l := plenty()
	l.All, l.Unproven = 4, 4 // of which two may be quiet
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: l, Refusals: 3})
	_, known := v.come("127.0.0.1", true)
	v.counts(1, 1)
	v.l.Known(known)
	v.counts(1, 0)
	first, _ := v.come("127.0.0.1", true)
	v.counts(2, 1)
	_, second := v.come("127.0.0.1", true)
	v.counts(3, 2)
	// One more than may be quiet: the one without progress for longest goes, and the known one stays.
	_, third := v.come("127.0.0.1", true)
	closed(t, first)
	v.counts(3, 2)
	v.l.Known(second)
	v.l.Known(third)
	_, fourth := v.come("127.0.0.1", true)
	v.counts(4, 1)
	v.l.Known(fourth)
	// All are known: who comes now is turned away, until there is room again.
	late, _ := v.come("127.0.0.1", true)
	closed(t, late)
	v.counts(4, 0)
	for range 3 {
		v.l.Refused(fourth)
	}
	v.counts(3, 0)
	_, again := v.come("127.0.0.1", true)
	v.counts(4, 1)
	for range 2 {
		v.l.Refused(again)
	}
	v.counts(4, 1)
	v.l.Refused(again)
	v.counts(3, 0)
}

// TestAnAddressSpendsItsOwnShare: one address that opens more connections than its share loses its own, and no others.
func TestAnAddressSpendsItsOwnShare(t *testing.T) {
	t.Parallel()
	l := plenty()
	l.PerAddress = 2
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: l})
	other, _ := v.come("127.0.0.9", false)
	v.counts(1, 1)
	var hostile []net.Conn
	for i := range 5 {
		conn, _ := v.come("127.0.0.2", false)
		hostile = append(hostile, conn)
		v.counts(1+min(i+1, 2), 1+min(i+1, 2))
	}
	for _, conn := range hostile[:3] {
		closed(t, conn)
	}
	if _, err := other.Write([]byte("x")); err != nil {
		t.Errorf("the other address: %v", err)
	}
	v.counts(3, 3)
}

// TestEachClosingIsCountedOnce: a connection that gave way fails afterwards, which is no second closing.
func TestEachClosingIsCountedOnce(t *testing.T) {
	t.Parallel()
	l := plenty()
	l.PerAddress = 2
	var mu sync.Mutex
	counted := map[string]int{}
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: l, Closed: func(why string) {
		mu.Lock()
		defer mu.Unlock()
		counted[why]++
	}})
	var all []net.Conn
	for i := range 5 {
		conn, _ := v.come("127.0.0.2", false)
		all = append(all, conn)
		v.counts(min(i+1, 2), min(i+1, 2))
	}
	for _, conn := range all[:3] {
		closed(t, conn)
	}
	for _, conn := range all[3:] {
		_ = conn.Close()
	}
	v.counts(0, 0)
	want := map[string]int{ratelimit.ClosedCrowded: 3, ratelimit.ClosedLeft: 2}
	testkit.Eventually(t, soon, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(counted, want)
	}, "not counted as %v", want)
}

// TestKnownConnectionsCountForNoAddress: a site behind one address has any number of connections that are known.
func TestKnownConnectionsCountForNoAddress(t *testing.T) {
	t.Parallel()
	l := plenty()
	l.PerAddress = 1
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: l})
	for i := range 10 {
		_, call := v.come("127.0.0.1", true)
		v.counts(i+1, 1)
		v.l.Known(call)
		v.counts(i+1, 0)
	}
}

// TestSilentConnectionsKeepNobodyOut: those that say nothing give way to each other, and not those that have spoken.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	l := plenty()
	l.Unproven = 4
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: l})
	_, spoke := v.come("127.0.0.1", true)
	v.counts(1, 1)
	for i := range 20 {
		v.come("127.0.1."+string(rune('1'+i%9)), false)
	}
	v.counts(5, 5)
	v.l.Known(spoke)
	v.counts(5, 4)
}

// TestLateConnectionsAreClosed: each step has an end: the first byte, and the first request.
func TestLateConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	v := newVisitors(t, ratelimit.ListenerConfig{Limits: plenty(),
		Times: ratelimit.Times{FirstByte: 50 * time.Millisecond, FirstRequest: 100 * time.Millisecond}})
	silent, _ := v.come("127.0.0.1", false)
	closed(t, silent)
	quiet, _ := v.come("127.0.0.1", true)
	closed(t, quiet)
	v.counts(0, 0)
}
