package fleetapi

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// handshakeTurn is how long a connection waits for its turn to shake hands, handshakeTime how long that may take. Agents wait for
	// 20 s, and for a minute where they know of no other controller (transport.LastPatience); one that is sent away comes again
	// later than its turn would have been.
	handshakeTurn = 50 * time.Second
	handshakeTime = 15 * time.Second
	// prefaceTime is what is left for the first bytes of HTTP/2 after it.
	prefaceTime = 20 * time.Second
	// cutAfter is how long a session's stream may take to end before its connection is closed under it.
	cutAfter = 5 * time.Second
)

var errBusy = errors.New("too many connections shake hands at once")

// Connections are transport credentials that bound how many handshakes are under way at a time, and that know the
// connections, so that one whose other end has stopped reading can be cut.
type Connections struct {
	credentials.TransportCredentials
	turns *turns
	open  *sync.Map // of the remote address, as text, to net.Conn
}

// NewConnections bounds the handshakes of what it wraps.
func NewConnections(inner credentials.TransportCredentials, concurrent int) Connections {
	return Connections{inner, &turns{free: concurrent}, &sync.Map{}}
}

// Clone implements credentials.TransportCredentials; the copy has the same bound.
func (c Connections) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// ServerHandshake implements credentials.TransportCredentials.
func (c Connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !c.turns.take(handshakeTurn) {
		return nil, nil, errors.Join(errBusy, raw.Close())
	}
	defer c.turns.give()
	// Whoever is slow must not keep others waiting.
	if err := raw.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, nil, err
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if err := raw.SetDeadline(time.Now().Add(prefaceTime)); err != nil {
		return nil, nil, err
	}
	known := &knownConn{conn, c.open}
	c.open.Store(raw.RemoteAddr().String(), known)
	return known, info, nil
}

// turns are places that the newest of those who wait are given first. Where more come than can be served, whoever has waited
// longest is about to go away, and what is done for it is done for nothing: in order of arrival hardly one would get through.
type turns struct {
	mu   sync.Mutex
	free int
	// waiting holds a chan struct{} for each, the newest at the back, that is closed when it has a place.
	waiting list.List
}

// take waits for a place, which must be given back, and says whether there was one in time.
func (t *turns) take(limit time.Duration) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	place := t.waiting.PushBack(mine)
	t.mu.Unlock()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-mine:
		return true
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine:
		return true // at this moment
	default:
		t.waiting.Remove(place)
		return false
	}
}

// give hands a place on.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := t.waiting.Back()
	if newest == nil {
		t.free++
		return
	}
	close(t.waiting.Remove(newest).(chan struct{}))
}

// Cut closes the connection of a call.
func (c Connections) Cut(call context.Context) {
	p, ok := peer.FromContext(call)
	if !ok {
		return
	}
	if conn, ok := c.open.Load(p.Addr.String()); ok {
		_ = conn.(net.Conn).Close() // what is wrong with it is why it is closed
	}
}

// knownConn takes itself off the list when it is closed.
type knownConn struct {
	net.Conn
	open *sync.Map
}

// Close implements net.Conn.
func (c *knownConn) Close() error {
	c.open.CompareAndDelete(c.RemoteAddr().String(), c)
	return c.Conn.Close()
}
