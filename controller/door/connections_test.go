package door_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/controller/door"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// visitors opens connections to a bounded listener.
type visitors struct {
	t *testing.T
	c *door.Connections
}

func newVisitors(t *testing.T, l door.ConnectionLimits) visitors {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := visitors{t, door.Limit(raw, l)}
	accepted := make(chan net.Conn, 100)
	task.Background("accept", func() {
		defer close(accepted)
		for {
			conn, err := v.c.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	})
	t.Cleanup(func() {
		_ = v.c.Close()
		for conn := range accepted {
			_ = conn.Close()
		}
	})
	return v
}

// come opens a connection and gives the context of a call on it.
func (v visitors) come() (net.Conn, context.Context) {
	v.t.Helper()
	conn, err := net.Dial("tcp", v.c.Addr().String())
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = conn.Close() })
	return conn, peer.NewContext(v.t.Context(), &peer.Peer{Addr: conn.LocalAddr()})
}

func (v visitors) counts(open, unproven int) {
	v.t.Helper()
	testkit.Eventually(v.t, soon, func() bool {
		o, u := v.c.Counts()
		return o == open && u == unproven
	}, "not %d open and %d unproven", open, unproven)
}

// closed waits for the other side's end of a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("read %d bytes of a connection that should be closed", n)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	v := newVisitors(t, door.ConnectionLimits{All: 4, Unproven: 2, Refusals: 3})
	_, known := v.come()
	v.counts(1, 1)
	v.c.Known(known)
	v.counts(1, 0)
	first, _ := v.come()
	v.counts(2, 1)
	_, second := v.come()
	v.counts(3, 2)
	// One more than may be unproven: the oldest of them goes, and the known one stays.
	_, third := v.come()
	closed(t, first)
	v.counts(3, 2)
	v.c.Known(second)
	v.c.Known(third)
	_, fourth := v.come()
	v.counts(4, 1)
	v.c.Known(fourth)
	// All are known: who comes now is turned away, until there is room again.
	late, _ := v.come()
	closed(t, late)
	v.counts(4, 0)
	for range 3 {
		v.c.Refused(fourth)
	}
	v.counts(3, 0)
	_, again := v.come()
	v.counts(4, 1)
	for range 2 {
		v.c.Refused(again)
	}
	v.counts(4, 1)
	v.c.Refused(again)
	v.counts(3, 0)
}

// soon is long, for machines that are busy.
const soon = 30 * time.Second
