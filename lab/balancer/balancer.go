// Package balancer is a small TCP load balancer for tests: connections go round the backends that are up. They go to
// the next one where a backend does not take them, as in HAProxy with option redispatch.
package balancer

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// dialTime is how long a backend may take to answer.
const dialTime = time.Second

// Balancer forwards connections. Use Open.
type Balancer struct {
	listener net.Listener

	mu       sync.Mutex
	backends []backend
	next     int
	open     map[net.Conn]struct{}
	closed   bool
}

type backend struct {
	address string
	up      bool
}

// Open listens on loopback, for n backends that are down.
func Open(n int) (*Balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open balancer: %w", err)
	}
	b := &Balancer{listener: l, backends: make([]backend, n), open: map[net.Conn]struct{}{}}
	task.Background("balancer", b.accept)
	return b, nil
}

// Address is where it listens.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Set sets the address of a backend, and whether new connections go there. Those that are open stay.
func (b *Balancer) Set(i int, address string, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[i].address, b.backends[i].up = address, up
}

// Close ends it and all that goes through it.
func (b *Balancer) Close() {
	_ = b.listener.Close() // it only listens
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for c := range b.open {
		_ = c.Close() // both ends see it
	}
}

func (b *Balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		task.Background("balance connection", func() { b.serve(c) })
	}
}

// candidates are the addresses to try, in turn.
func (b *Balancer) candidates() (addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.backends)
	for i := range n {
		at := (b.next + i) % n
		if b.backends[at].up {
			addresses = append(addresses, b.backends[at].address)
		}
	}
	b.next++
	return addresses
}

func (b *Balancer) serve(client net.Conn) {
	defer b.drop(client)
	if !b.keep(client) {
		return
	}
	server := b.dial()
	if server == nil {
		return
	}
	defer b.drop(server)
	if !b.keep(server) {
		return
	}
	done := make(chan struct{}, 2)
	forward := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // whatever ended it ends the pair
		done <- struct{}{}
	}
	task.Background("balance upstream", func() { forward(server, client) })
	task.Background("balance downstream", func() { forward(client, server) })
	<-done
}

func (b *Balancer) dial() net.Conn {
	for _, address := range b.candidates() {
		d := net.Dialer{Timeout: dialTime}
		if c, err := d.DialContext(context.Background(), "tcp", address); err == nil {
			return c
		}
	}
	return nil
}

func (b *Balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.open[c] = struct{}{}
	}
	return !b.closed
}

func (b *Balancer) drop(c net.Conn) {
	b.mu.Lock()
	delete(b.open, c)
	b.mu.Unlock()
	_ = c.Close() // both ends see it
}
