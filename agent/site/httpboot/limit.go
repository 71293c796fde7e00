package httpboot

import (
	"net"
	"net/netip"
	"sync"
)

// limiter bounds the open connections of a listener, in all and by source. One too many is closed at once: to wait
// would keep the others out.
type limiter struct {
	net.Listener
	total, each int

	mu   sync.Mutex
	n    int
	open map[netip.Addr]int
}

// Limit bounds the connections of a listener for TCP, in all and by source.
func Limit(l net.Listener, total, each int) net.Listener { return newLimiter(l, total, each) }

func newLimiter(l net.Listener, total, each int) *limiter {
	return &limiter{Listener: l, total: total, each: each, open: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *limiter) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // the zero address has a limit of its own
		if l.admit(from.Addr()) {
			if err := c.(*net.TCPConn).SetWriteBuffer(sendBuffer); err != nil {
				_ = c.Close() // it is broken already
				continue
			}
			return &limited{TCPConn: c.(*net.TCPConn), release: sync.OnceFunc(func() { l.release(from.Addr()) })}, nil
		}
		_ = c.Close() // it is not wanted, and gets no error
	}
}

// sendBuffer is how much of a file the kernel may keep for one connection: enough for a gigabyte per second over a
// round trip of half a millisecond. By itself it would keep several megabytes for each.
const sendBuffer = 512 << 10

func (l *limiter) admit(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n >= l.total || l.open[from] >= l.each {
		return false
	}
	l.n++
	l.open[from]++
	return true
}

func (l *limiter) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// limited is a connection that counts. It keeps the methods of a TCP connection, so that files are still sent by the
// kernel.
type limited struct {
	*net.TCPConn
	release func()
}

// Close implements net.Conn.
func (c *limited) Close() error {
	c.release()
	return c.TCPConn.Close()
}
