package gateway

import (
	"context"
	"net"
	"sync"
)

// Pipe is a listener inside the process: it accepts the connections of Dial. No other program can reach it, so it needs
// no TLS.
type Pipe struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var _ net.Listener = (*Pipe)(nil)

// NewPipe makes an open one.
func NewPipe() *Pipe { return &Pipe{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Dial makes a connection and waits until it is accepted. It has the form of gRPC's context dialer; the address means
// nothing.
func (p *Pipe) Dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for the next connection.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections stay open.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is a name for logs.
func (p *Pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
