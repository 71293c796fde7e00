package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/internal/task"
)

// Times bound how long a connection may take; each that is 0 has its default.
type Times struct {
	// FirstByte is the time until the first byte is received, Turn until a handshake begins, and Handshake until it is
	// done. FirstRequest is from then until there is a request. Defaults: 10 s, 50 s, 15 s, 30 s.
	FirstByte, Turn, Handshake, FirstRequest time.Duration
}

func (t Times) withDefaults() Times {
	for _, d := range []struct {
		set *time.Duration
		to  time.Duration
	}{{&t.FirstByte, 10 * time.Second}, {&t.Turn, 50 * time.Second}, {&t.Handshake, 15 * time.Second},
		{&t.FirstRequest, 30 * time.Second}} {
		if *d.set == 0 {
			*d.set = d.to
		}
	}
	return t
}

// ListenerConfig is what a Listener works with.
type ListenerConfig struct {
	Limits ConnectionLimits
	Times  Times
	// TLS, if set, is the handshake that each connection makes before Accept returns it.
	TLS *tls.Config
	// Turns bound how many handshakes are computed at a time. Listeners may share them. Required with TLS.
	Turns *Queue
	// Caller, if set, names the known caller of a connection out of its handshake. A connection with a caller is proven.
	Caller func(tls.ConnectionState) string
	// Refusals is how many calls of unknown callers one connection is good for; 0 is any number.
	Refusals int
	// Closed, if set, is called with the reason when a connection is closed that had no known caller, or had too many.
	Closed func(why string)
}

// Why connections are closed.
const (
	ClosedFull      = "full"      // as many are open, or wait for their turn, as may be
	ClosedCrowded   = "crowded"   // another one came, and this had made no progress for longest; or the queue was full
	ClosedLate      = "late"      // it took too long
	ClosedLeft      = "left"      // its other end closed it before it had sent anything
	ClosedHandshake = "handshake" // the handshake failed
	ClosedRefused   = "refused"   // too many calls of it were refused
	ClosedCaller    = "caller"    // its caller has newer ones
)

// Listener is a net.Listener that bounds connections before it is known who calls. Reading, waiting for a turn and
// shaking hands happen before Accept: what it returns has finished its handshake. It is safe for concurrent use.
type Listener struct {
	raw   net.Listener
	cfg   ListenerConfig
	ready chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	err     error
	slots   *slots
	remote  map[netip.AddrPort]*Conn
	callers map[string]*Conn // the newest of each; the others follow by older
}

// Conn is a connection of a Listener, below TLS.
type Conn struct {
	net.Conn
	of *Listener
	slot
	key      netip.AddrPort
	counted  bool // its closing was counted
	refusals int
	timer    *time.Timer // until the first request
	caller   string
	older    *Conn
	// first is a byte that was received before anybody asked for it.
	first    byte
	hasFirst bool
	// closed is closed with the connection, until its handshake is done; nil after that.
	closed chan struct{}
	// turn is held while a handshake is computed, and given back while it waits for the network.
	turn *Queue
	// waits is closed, for the handshake alone.
	waits <-chan struct{}
}

// Listen bounds the connections of a listener, and begins to accept them.
func Listen(raw net.Listener, cfg ListenerConfig) *Listener {
	cfg.Times, cfg.Limits = cfg.Times.withDefaults(), cfg.Limits.withDefaults()
	if cfg.Closed == nil {
		cfg.Closed = func(string) {}
	}
	l := &Listener{
		raw: raw, cfg: cfg, ready: make(chan net.Conn), done: make(chan struct{}), slots: newSlots(cfg.Limits),
		remote: map[netip.AddrPort]*Conn{}, callers: map[string]*Conn{},
	}
	task.Background("accept connections", l.run)
	return l
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.raw.Addr() }

// Close implements net.Listener. Connections that Accept has returned stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.raw.Close()
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			return nil, l.err
		}
		return nil, net.ErrClosed
	}
}

// run accepts until the listener is closed. It goes on after errors that pass, such as too many open files.
func (l *Listener) run() {
	const most = time.Second
	pause := time.Duration(0)
	for {
		raw, err := l.raw.Accept()
		if err == nil {
			pause = 0
			l.admit(raw)
			continue
		}
		var passing net.Error
		if !errors.As(err, &passing) || errors.Is(err, net.ErrClosed) {
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
			l.once.Do(func() { close(l.done) })
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), most)
		select {
		case <-l.done:
		case <-time.After(pause):
		}
	}
}

func keyOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// admit takes in a new connection, or closes it at once.
func (l *Listener) admit(raw net.Conn) {
	c := &Conn{Conn: raw, of: l, key: keyOf(raw.RemoteAddr())}
	if l.cfg.TLS != nil {
		c.closed = make(chan struct{})
	}
	c.slot = slot{address: shareOf(c.key.Addr()), conn: c}
	l.mu.Lock()
	victims, ok := l.slots.add(&c.slot, time.Now())
	if ok {
		l.remote[c.key] = c
	}
	l.mu.Unlock()
	for _, v := range victims {
		l.closeConn(v, ClosedCrowded)
	}
	if !ok {
		l.cfg.Closed(ClosedFull)
		_ = raw.Close() // no caller is served by it
		return
	}
	task.Background("new connection", c.begin)
}

// closeConn closes the connection of a place, if there is one, and counts it under the first reason: what a closed
// connection then fails at is no reason of its own.
func (l *Listener) closeConn(p *slot, why string) {
	if p == nil {
		return
	}
	l.mu.Lock()
	first := !p.conn.counted
	p.conn.counted = true
	l.mu.Unlock()
	if first {
		l.cfg.Closed(why)
	}
	_ = p.conn.Close() // its error does not matter: it is forgotten
}

// begin brings a connection as far as Accept.
func (c *Conn) begin() {
	l := c.of
	if why := c.receive(); why != "" {
		l.closeConn(&c.slot, why)
		return
	}
	var conn net.Conn = c
	if l.cfg.TLS != nil {
		t, why := c.handshake()
		if t == nil {
			l.closeConn(&c.slot, why)
			return
		}
		conn = t
	} else {
		c.advance(quiet)
	}
	c.expectRequest()
	select {
	case l.ready <- conn:
	case <-l.done:
		_ = c.Close() // the server has ended
	}
}

// receive waits for the first byte, and returns why there is none; "" where it has come.
func (c *Conn) receive() (why string) {
	if c.SetReadDeadline(time.Now().Add(c.of.cfg.Times.FirstByte)) != nil {
		return ClosedLeft
	}
	var one [1]byte
	n, err := c.Conn.Read(one[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ClosedLate
	case n != 1 || err != nil || c.SetReadDeadline(time.Time{}) != nil:
		return ClosedLeft
	}
	c.first, c.hasFirst = one[0], true
	return ""
}

// handshake makes the handshake when it is its turn.
func (c *Conn) handshake() (_ *tls.Conn, why string) {
	l := c.of
	l.mu.Lock()
	closed := c.closed
	l.mu.Unlock()
	if closed == nil {
		return nil, ClosedLate // it has given way already
	}
	defer func() {
		l.mu.Lock()
		c.closed = nil
		l.mu.Unlock()
	}()
	c.advance(waiting)
	if !l.cfg.Turns.acquire(c.address, l.cfg.Times.Turn, closed) {
		return nil, ClosedLate
	}
	c.advance(shaking)
	select {
	case <-closed: // its turn came too late
		l.cfg.Turns.release()
		return nil, ClosedLate
	default:
	}
	c.turn, c.waits = l.cfg.Turns, closed
	defer func() {
		if c.turn != nil {
			c.turn.release()
		}
		c.turn, c.waits = nil, nil
	}()
	if c.SetDeadline(time.Now().Add(l.cfg.Times.Handshake)) != nil {
		return nil, ClosedHandshake
	}
	t := tls.Server(c, l.cfg.TLS)
	if err := t.HandshakeContext(context.Background()); err != nil {
		return nil, ClosedHandshake
	}
	if c.SetDeadline(time.Time{}) != nil {
		return nil, ClosedHandshake
	}
	limitUnacknowledged(c.Conn)
	if l.cfg.Caller == nil {
		c.advance(quiet)
	} else {
		c.setCaller(l.cfg.Caller(t.ConnectionState()))
	}
	return t, ""
}

// Read implements net.Conn. During a handshake others compute theirs while this one waits for the network, unless the
// handshake keeps its turn to its end: a returning fleet would otherwise begin more handshakes than it can finish.
func (c *Conn) Read(b []byte) (int, error) {
	if c.hasFirst && len(b) > 0 {
		b[0], c.hasFirst = c.first, false
		return 1, nil
	}
	if c.turn == nil || c.of.cfg.Limits.HandshakeTime > 0 {
		return c.Conn.Read(b)
	}
	c.turn.release()
	n, err := c.Conn.Read(b)
	if err != nil { // nothing is left to compute
		c.turn = nil
		return n, err
	}
	if !c.turn.acquire(c.address, c.of.cfg.Times.Handshake, c.waits) {
		c.turn = nil
		return n, errors.Join(err, errNoTurn)
	}
	return n, err
}

var errNoTurn = errors.New("too many connections shake hands at once")

// Close implements net.Conn.
func (c *Conn) Close() error {
	l := c.of
	l.mu.Lock()
	l.slots.remove(&c.slot)
	if l.remote[c.key] == c {
		delete(l.remote, c.key)
	}
	l.releaseCaller(c)
	if c.closed != nil {
		close(c.closed)
		c.closed = nil
	}
	c.requested()
	l.mu.Unlock()
	return c.Conn.Close()
}

func (c *Conn) advance(to stage) {
	l := c.of
	l.mu.Lock()
	victims := l.slots.advance(&c.slot, to, time.Now())
	l.mu.Unlock()
	for _, v := range victims {
		l.closeConn(v, ClosedCrowded)
	}
}

// expectRequest closes the connection where no request comes in time.
func (c *Conn) expectRequest() {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.stage < proven {
		c.timer = time.AfterFunc(l.cfg.Times.FirstRequest, func() { l.closeConn(&c.slot, ClosedLate) })
	}
}

// requested needs mu.
func (c *Conn) requested() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// setCaller proves a connection, and closes the oldest of its caller's where that has too many.
func (c *Conn) setCaller(caller string) {
	l := c.of
	l.mu.Lock()
	if c.stage == gone {
		l.mu.Unlock()
		return
	}
	l.slots.advance(&c.slot, proven, time.Now())
	c.caller, c.older = caller, l.callers[caller]
	l.callers[caller] = c
	n, oldest := 0, c
	for at := c; at != nil; at = at.older {
		n++
		oldest = at
	}
	l.mu.Unlock()
	if n > l.cfg.Limits.PerCaller {
		l.closeConn(&oldest.slot, ClosedCaller)
	}
}

// releaseCaller needs mu.
func (l *Listener) releaseCaller(c *Conn) {
	if c.caller == "" {
		return
	}
	if head := l.callers[c.caller]; head == c {
		if c.older == nil {
			delete(l.callers, c.caller)
		} else {
			l.callers[c.caller] = c.older
		}
	} else {
		for at := head; at != nil; at = at.older {
			if at.older == c {
				at.older = c.older
				break
			}
		}
	}
	c.caller, c.older = "", nil
}

// of finds the connection of a call.
func (l *Listener) of(call context.Context) *Conn {
	p, ok := peer.FromContext(call)
	if !ok || p.Addr == nil {
		return nil
	}
	return l.remote[keyOf(p.Addr)]
}

// Known notes that a call of a known client has come on the connection of a context.
func (l *Listener) Known(call context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.of(call); c != nil {
		c.requested()
		l.slots.advance(&c.slot, proven, time.Now())
	}
}

// Requested notes a call that needs no known client.
func (l *Listener) Requested(call context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.of(call); c != nil && c.stage == quiet {
		c.requested()
		l.slots.advance(&c.slot, quiet, time.Now())
	}
}

// Refused records a call that was refused on the connection of a context because its caller is unknown.
func (l *Listener) Refused(call context.Context) {
	l.mu.Lock()
	c := l.of(call)
	enough := false
	if c != nil {
		c.refusals++
		enough = l.cfg.Refusals > 0 && c.refusals >= l.cfg.Refusals
	}
	l.mu.Unlock()
	if enough {
		l.closeConn(&c.slot, ClosedRefused)
	}
}

// Caller is the known caller of the connection of a context, where its handshake has named one.
func (l *Listener) Caller(call context.Context) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.of(call); c != nil {
		return c.caller
	}
	return ""
}

// CloseConn closes the connection of a call.
func (l *Listener) CloseConn(call context.Context) {
	l.mu.Lock()
	c := l.of(call)
	l.mu.Unlock()
	if c != nil {
		_ = c.Close() // it is closed because of its error
	}
}

// Counts are how many connections are open, and how many of them have no known caller.
func (l *Listener) Counts() (open, unproven int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots.open, l.slots.unproven()
}
