package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// Listen makes a TCP listener in the namespace. The address is an IP address and a port: there is no DNS there.
func (n *Namespace) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() error {
		var err error
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Dial connects from inside the namespace to an IP address and a port.
func (n *Namespace) Dial(ctx context.Context, address string) (net.Conn, error) {
	var conn net.Conn
	err := n.Do(func() error {
		var d net.Dialer
		var err error
		// One address and no fallback: the dial stays on this thread.
		conn, err = d.DialContext(ctx, "tcp4", address)
		return err
	})
	return conn, err
}

// Tunnel passes TCP connections from a listener on to a dialer, whatever networks the two are in.
type Tunnel struct {
	listener net.Listener
	group    *task.Group
	ctx      context.Context
	cancel   context.CancelFunc

	mu   sync.Mutex
	dial func(context.Context) (net.Conn, error)
	open map[net.Conn]struct{}
}

// NewTunnel passes on until Close. A nil dial refuses all connections.
func NewTunnel(l net.Listener, dial func(context.Context) (net.Conn, error)) *Tunnel {
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := task.New(ctx)
	t := &Tunnel{listener: l, group: group, ctx: ctx, cancel: cancel, dial: dial, open: map[net.Conn]struct{}{}}
	group.Go("tunnel", func(context.Context) error { return t.accept() })
	return t
}

// ToHost dials an address on the network of this process.
func ToHost(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
}

// Into dials an address in the namespace.
func (n *Namespace) Into(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return n.Dial(ctx, address) }
}

// Retarget sends new connections elsewhere, and cuts the old ones.
func (t *Tunnel) Retarget(dial func(context.Context) (net.Conn, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dial = dial
	t.cut()
}

// Close ends the tunnel and all that goes through it.
func (t *Tunnel) Close() error {
	err := t.listener.Close()
	t.cancel()
	t.Retarget(nil)
	return errors.Join(err, t.group.Wait())
}

func (t *Tunnel) cut() {
	for c := range t.open {
		_ = c.Close() // both ends see the connection go; the error has no other reader
	}
}

func (t *Tunnel) accept() error {
	for {
		c, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept for tunnel: %w", err)
		}
		t.group.Go("tunnel connection", func(ctx context.Context) error {
			t.serve(ctx, c)
			return nil
		})
	}
}

func (t *Tunnel) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := t.connect(ctx, client)
	if err != nil {
		return // the client sees the connection go
	}
	defer t.forget(client, server)
	defer server.Close()
	both, _ := task.New(ctx)
	both.Go("up", func(context.Context) error { return pipe(server, client) })
	both.Go("down", func(context.Context) error { return pipe(client, server) })
	_ = both.Wait() // how a connection ends is known to its two ends
}

var errRefused = errors.New("tunnel leads nowhere")

// connect makes both connections known to Retarget, unless that has happened in between.
func (t *Tunnel) connect(ctx context.Context, client net.Conn) (net.Conn, error) {
	t.mu.Lock()
	dial := t.dial
	t.open[client] = struct{}{}
	t.mu.Unlock()
	if dial == nil {
		t.forget(client)
		return nil, errRefused
	}
	server, err := dial(ctx)
	if err != nil {
		t.forget(client)
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[server] = struct{}{}
	return server, nil
}

func (t *Tunnel) forget(conns ...net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range conns {
		delete(t.open, c)
	}
}

// pipe passes the end of the one direction on and leaves the other open.
func pipe(to, from net.Conn) error {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		return half.CloseWrite()
	}
	return errors.Join(err, to.Close(), from.Close())
}
