package harness

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/internal/task"
)

// Relay forwards TCP connections to a target that can change, be blocked and be cut.
type Relay struct {
	listener net.Listener

	mu       sync.Mutex
	network  string
	address  string
	blocked  bool
	frozen   chan struct{} // closed while traffic flows
	pairs    map[*pair]struct{}
	accepted int
}

type pair struct{ client, server net.Conn }

// NewRelay listens on loopback until the test ends.
func NewRelay(t testing.TB, network, address string) *Relay {
	t.Helper()
	r := openRelay(t, network, address)
	t.Cleanup(r.Close)
	return r
}

func openRelay(t testing.TB, network, address string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("open relay: %v", err)
	}
	flowing := make(chan struct{})
	close(flowing)
	r := &Relay{listener: l, network: network, address: address, frozen: flowing, pairs: map[*pair]struct{}{}}
	task.Background("relay", r.accept)
	return r
}

// Close ends the relay and all that goes through it.
func (r *Relay) Close() {
	r.listener.Close()
	r.Thaw()
	r.Cut()
}

// Address is where the relay listens.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Accepted counts the connections so far.
func (r *Relay) Accepted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

// Retarget sends new connections elsewhere.
func (r *Relay) Retarget(network, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network, r.address, r.blocked = network, address, false
}

// Block ends all connections and refuses new ones until Unblock.
func (r *Relay) Block() {
	r.mu.Lock()
	r.blocked = true
	r.mu.Unlock()
	r.Cut()
}

// Unblock lets new connections through again.
func (r *Relay) Unblock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = false
}

// Freeze holds all bytes back, in both directions, with every connection open: a network that swallows packets.
func (r *Relay) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = make(chan struct{})
}

// Thaw lets the bytes through again.
func (r *Relay) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.frozen:
	default:
		close(r.frozen)
	}
}

// Cut ends all connections of this moment.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.close()
	}
}

func (p *pair) close() {
	// Both ends see the connection go; there is nobody else to tell.
	_ = p.client.Close()
	if p.server != nil {
		_ = p.server.Close()
	}
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		task.Background("relay connection", func() { r.serve(c) })
	}
}

func (r *Relay) serve(client net.Conn) {
	p := &pair{client: client}
	r.mu.Lock()
	r.accepted++
	network, address, blocked := r.network, r.address, r.blocked
	r.pairs[p] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		p.close()
		delete(r.pairs, p)
	}()
	if blocked || address == "" {
		return
	}
	var d net.Dialer
	server, err := d.DialContext(context.Background(), network, address)
	if err != nil {
		return
	}
	r.mu.Lock()
	p.server = server
	blocked = r.blocked
	r.mu.Unlock()
	if blocked {
		return
	}
	done := make(chan struct{}, 2)
	forward := func(to, from net.Conn) {
		r.copy(to, from)
		done <- struct{}{}
	}
	task.Background("relay upstream", func() { forward(server, client) })
	task.Background("relay downstream", func() { forward(client, server) })
	<-done
}

func (r *Relay) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			r.mu.Lock()
			frozen := r.frozen
			r.mu.Unlock()
			<-frozen
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
