package door

import (
	"container/list"
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// ConnectionLimits bound what connections cost that no known client has shown itself on, and all together. Each must be positive.
type ConnectionLimits struct {
	// All is how many connections are open at a time. Unproven ones have had no call of a known client yet; where there are too
	// many, the oldest of them is closed for each that comes.
	All, Unproven int
	// Refusals is how many calls of unknown clients one connection is good for.
	Refusals int
}

// Connections is a listener that bounds its open connections. It is safe for concurrent use.
type Connections struct {
	net.Listener
	limits ConnectionLimits

	mu   sync.Mutex
	open map[string]*connection // by remote address
	// unproven are those of them that have had no call of a known client, oldest first.
	unproven *list.List
}

// connection is one of a listener's.
type connection struct {
	net.Conn
	of       *Connections
	place    *list.Element // nil once it is proven
	refusals int
	gone     sync.Once
}

// Limit bounds the connections of a listener.
func Limit(l net.Listener, limits ConnectionLimits) *Connections {
	return &Connections{Listener: l, limits: limits, open: map[string]*connection{}, unproven: list.New()}
}

// Accept implements net.Listener. A connection that there is no room for is closed at once.
func (c *Connections) Accept() (net.Conn, error) {
	for {
		raw, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn := c.admit(raw); conn != nil {
			return conn, nil
		}
	}
}

func (c *Connections) admit(raw net.Conn) net.Conn {
	c.mu.Lock()
	full := len(c.open) >= c.limits.All
	var oldest *connection
	if c.unproven.Len() >= c.limits.Unproven || full && c.unproven.Len() > 0 {
		oldest, _ = c.unproven.Front().Value.(*connection)
	}
	c.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // whatever it says, it is forgotten
	} else if full {
		_ = raw.Close() // nobody has been told of it
		return nil
	}
	conn := &connection{Conn: raw, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[raw.RemoteAddr().String()] = conn
	conn.place = c.unproven.PushBack(conn)
	return conn
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.gone.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.prove()
		if address := c.RemoteAddr().String(); c.of.open[address] == c {
			delete(c.of.open, address)
		}
	})
	return c.Conn.Close()
}

// prove needs of.mu.
func (c *connection) prove() {
	if c.place != nil {
		c.of.unproven.Remove(c.place)
		c.place = nil
	}
}

// Known says that a call of a known client has come on the connection of a context.
func (c *Connections) Known(ctx context.Context) {
	address := addressOf(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.open[address]; conn != nil {
		conn.prove()
	}
}

// Refused says that a call was refused on the connection of a context because nobody knows who makes it.
func (c *Connections) Refused(ctx context.Context) {
	address := addressOf(ctx)
	c.mu.Lock()
	conn := c.open[address]
	var enough bool
	if conn != nil {
		conn.refusals++
		enough = conn.refusals >= c.limits.Refusals
	}
	c.mu.Unlock()
	if enough {
		_ = conn.Close() // it was no use to anybody
	}
}

// Counts are how many connections are open, and how many of them unproven.
func (c *Connections) Counts() (open, unproven int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.unproven.Len()
}

func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}
