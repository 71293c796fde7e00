// Package relay lets the machines of a segment reach the controller, and nothing else, through the site's boot server:
// HTTP CONNECT (RFC 9110, 9.3.6) to an allow-list of host:port.
package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// The defaults of a Config.
const (
	DefaultIdle       = 3 * time.Minute
	DefaultPerMachine = 16
	DefaultTotal      = 2048
	dialTimeout       = 10 * time.Second
	bufferBytes       = 16 << 10
)

// Config describes a Relay.
type Config struct {
	// Allowed reports whether host:port, exactly as written, may be reached.
	Allowed func(hostport string) bool
	// Dial opens a TCP connection; nil means the network's.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Idle ends a connection on which nothing moves.
	Idle time.Duration
	// PerMachine and Total bound the open connections, by source address and in all.
	PerMachine, Total int
	Log               *slog.Logger
}

// Relay is safe for concurrent use.
type Relay struct {
	cfg Config

	mu    sync.Mutex
	total int
	open  map[netip.Addr]int
	ended bool
	conns map[net.Conn]struct{}
}

// New makes a Relay.
func New(cfg Config) *Relay {
	if cfg.Idle == 0 {
		cfg.Idle = DefaultIdle
	}
	if cfg.PerMachine == 0 {
		cfg.PerMachine = DefaultPerMachine
	}
	if cfg.Total == 0 {
		cfg.Total = DefaultTotal
	}
	if cfg.Dial == nil {
		d := net.Dialer{Timeout: dialTimeout}
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	return &Relay{cfg: cfg, open: map[netip.Addr]int{}, conns: map[net.Conn]struct{}{}}
}

// ServeHTTP answers CONNECT and returns when the connection has ended.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.cfg.Allowed(req.Host) {
		r.cfg.Log.Warn("relay refused", "remote", req.RemoteAddr, "to", req.Host)
		http.Error(w, "not a controller address", http.StatusForbidden)
		return
	}
	from, _ := netip.ParseAddrPort(req.RemoteAddr) // the zero address has a limit of its own
	if !r.admit(from.Addr()) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many connections", http.StatusTooManyRequests)
		return
	}
	defer r.release(from.Addr())
	ctx, cancel := context.WithTimeout(req.Context(), dialTimeout)
	defer cancel()
	out, err := r.cfg.Dial(ctx, req.Host)
	if err != nil {
		r.cfg.Log.Warn("controller not reached for a machine", "remote", req.RemoteAddr, "to", req.Host, "error", err)
		w.Header().Set("Retry-After", "2")
		http.Error(w, "the controller cannot be reached", http.StatusBadGateway)
		return
	}
	defer r.forget(out)
	in, early, err := takeOver(w)
	if err != nil {
		r.cfg.Log.Warn("relay not established", "remote", req.RemoteAddr, "error", err)
		return
	}
	defer r.forget(in)
	if !r.remember(in, out) {
		return
	}
	if err := r.join(in, early, out); err != nil {
		r.cfg.Log.Debug("relay ended", "remote", req.RemoteAddr, "to", req.Host, "error", err)
	}
}

// Close ends all connections.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close() // its two copiers see it
	}
}

// Open is how many connections there are now.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

func (r *Relay) admit(from netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.total >= r.cfg.Total || r.open[from] >= r.cfg.PerMachine {
		return false
	}
	r.total++
	r.open[from]++
	return true
}

func (r *Relay) release(from netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	if r.open[from]--; r.open[from] == 0 {
		delete(r.open, from)
	}
}

func (r *Relay) remember(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return !r.ended
}

func (r *Relay) forget(c net.Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_ = c.Close() // closed before, in most cases
}

// takeOver answers the request and returns the connection, and the bytes that the client has sent on it already.
func takeOver(w http.ResponseWriter) (net.Conn, []byte, error) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return nil, nil, errors.New("take over connection: not of HTTP/1.1")
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	early := make([]byte, buffered.Reader.Buffered())
	_, err = io.ReadFull(buffered.Reader, early)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, early, nil
}

// join copies both ways until both have ended, or nothing has moved for a while.
func (r *Relay) join(in net.Conn, early []byte, out net.Conn) error {
	if _, err := out.Write(early); err != nil {
		return err
	}
	var moved atomic.Int64
	moved.Store(time.Now().UnixNano())
	group, _ := task.New(context.Background())
	group.Go("up", func(context.Context) error { return r.pump(out, in, &moved) })
	group.Go("down", func(context.Context) error { return r.pump(in, out, &moved) })
	return group.Wait()
}

// pump copies one way. A stream that is silent one way is idle only when the other way is silent too.
func (r *Relay) pump(to, from net.Conn, moved *atomic.Int64) (err error) {
	defer func() { err = errors.Join(err, endPump(to, from, err)) }()
	buf := make([]byte, bufferBytes)
	for {
		if err := from.SetReadDeadline(time.Now().Add(r.cfg.Idle)); err != nil {
			return err
		}
		n, err := from.Read(buf)
		if n > 0 {
			moved.Store(time.Now().UnixNano())
			if err := to.SetWriteDeadline(time.Now().Add(r.cfg.Idle)); err != nil {
				return err
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		var timeout net.Error
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &timeout) && timeout.Timeout() && time.Since(time.Unix(0, moved.Load())) < r.cfg.Idle:
		case err != nil:
			return err
		}
	}
}

// endPump passes an end on, and ends everything after a failure.
func endPump(to, from net.Conn, err error) error {
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok {
		return half.CloseWrite()
	}
	return errors.Join(ignoreClosed(to.Close()), ignoreClosed(from.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
