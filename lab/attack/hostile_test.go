package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// hold waits, as a hostile client does that wants to be in the way.
func hold(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// clientHello is the first flight of a TLS 1.3 handshake, which may be sent any number of times.
func clientHello(cfg *tls.Config) ([]byte, error) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := there.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	task.Background("begin a handshake", func() { _ = tls.Client(here, cfg).Handshake() }) // never answered
	b := make([]byte, 16<<10)
	n, err := there.Read(b)
	return b[:n], err
}

// crowd are hostile connections.
type crowd struct {
	mu   sync.Mutex
	open []net.Conn
	// turned is how many could not be opened, or were closed before they had sent what they send.
	turned atomic.Int64
}

// gather opens n connections from as many addresses, some at a time, and calls say on each.
func (r *Rig) gather(
	ctx context.Context, n int, targets []string, say func(i int, c net.Conn) (net.Conn, error),
) *crowd {
	c := &crowd{}
	var next atomic.Int64
	g, _ := task.New(ctx)
	for range 32 {
		g.Go("hostile", func(ctx context.Context) error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				conn, err := r.Dial(ctx, i, targets[i%len(targets)])
				if err != nil {
					c.turned.Add(1)
					continue
				}
				said, err := say(i, conn)
				if err != nil {
					conn.Close()
					c.turned.Add(1)
					continue
				}
				c.mu.Lock()
				c.open = append(c.open, said)
				c.mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait() // they return none
	return c
}

// left waits until the controller has closed every connection, and returns the number of those that it has not.
func (c *crowd) left(limit time.Duration) (open int) {
	until := time.Now().Add(limit)
	for _, conn := range c.open {
		if conn.SetReadDeadline(until) != nil {
			continue
		}
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			open++
		}
	}
	return open
}

func (c *crowd) close() {
	for _, conn := range c.open {
		conn.Close()
	}
}

// half is a body of which so much is sent, and never the rest.
type half struct {
	ctx    context.Context //nolint:containedctx // a reader gets none
	header []byte
	left   int
	sent   func()
	// over ends the body with errStillRead, and cut with errCutOff.
	over <-chan time.Time
	cut  <-chan struct{}
}

func (h *half) Read(b []byte) (int, error) {
	switch {
	case len(h.header) > 0:
		n := copy(b, h.header)
		h.header = h.header[n:]
		return n, nil
	case h.left > 0:
		n := min(len(b), h.left)
		h.left -= n
		return n, nil
	}
	h.sent()
	select {
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	case <-h.cut:
		return 0, errCutOff
	case <-h.over:
		return 0, errStillRead
	}
}

// Both end a body that is no longer read: net/http returns no error of a connection before the body has ended.
var (
	errStillRead = errors.New("nothing has ended the request")
	errCutOff    = errors.New("the controller has closed the connection")
)

// watchedConn closes ended when the connection can be read no more.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// watch ends the body when the connection of its request ends.
func (h *half) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if secure, ok := got.Conn.(*tls.Conn); ok {
			if conn, ok := secure.NetConn().(*watchedConn); ok {
				h.cut = conn.ended // before the body is read
			}
		}
	}})
}

// bodies are requests whose bodies never end.
type bodies struct {
	url, contentType string
	header           []byte // before the body
	size             int    // of the bytes that are sent of each
	requests, conns  int    // in all, and over how many transports
	cert             []tls.Certificate
	http1            bool
	// answered waits for answers, not until bodies are sent.
	answered bool
}

// send makes the requests, holds them for a moment once each is sent or answered, and counts those that were answered.
func (r *Rig) send(ctx context.Context, b bodies) (answered int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var settled, answers atomic.Int64
	g, _ := task.New(ctx)
	for t := range b.conns {
		cfg := r.TLS()
		cfg.Certificates = b.cert
		tr := &http.Transport{
			TLSClientConfig: cfg, ForceAttemptHTTP2: !b.http1,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				conn, err := r.Dial(ctx, t, address)
				if err != nil {
					return nil, err
				}
				return &watchedConn{Conn: conn, ended: make(chan struct{})}, nil
			},
		}
		if b.http1 {
			cfg.NextProtos = []string{"http/1.1"}
		}
		defer tr.CloseIdleConnections()
		for range b.requests / b.conns {
			g.Go("hostile", func(ctx context.Context) error {
				var once sync.Once
				done := func() { once.Do(func() { settled.Add(1) }) }
				defer done()
				body := &half{ctx: ctx, header: b.header, left: b.size, sent: func() {
					if !b.answered {
						done()
					}
				}}
				if b.answered {
					body.over = time.After(15 * time.Second)
				}
				req, err := http.NewRequestWithContext(body.watch(ctx), http.MethodPost, b.url, body)
				if err != nil {
					return err
				}
				req.Header.Set("Content-Type", b.contentType)
				if resp, err := tr.RoundTrip(req); err == nil {
					answers.Add(1)
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				} else if ctx.Err() == nil && !errors.Is(err, errStillRead) {
					answers.Add(1) // cut off
				}
				return nil
			})
		}
	}
	for until := time.Now().Add(20 * time.Second); settled.Load() < int64(b.requests) && time.Now().Before(until); {
		hold(ctx, 50*time.Millisecond)
	}
	hold(ctx, 2*time.Second)
	cancel()
	return answers.Load(), g.Wait()
}
