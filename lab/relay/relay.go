package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Relay forwards TCP connections to a target that can change, be blocked and be cut.
type Relay struct {
	listener net.Listener

	mu       sync.Mutex
	network  string
	address  string
	blocked  bool
	delay    time.Duration
	jitter   time.Duration
	struck   int
	frozen   [2]chan struct{} // by Direction; closed while traffic flows
	pairs    map[*pair]struct{}
	accepted int
	postgres bool
	losing   losing
	lost     int
}

type pair struct {
	client, server net.Conn
	held           chan struct{} // closed when an abandoned one may end
	deaf           atomic.Bool   // the client gets no more of what the server answers
}

// Direction is one of the two that bytes take.
type Direction int

// Up is towards the target, Down is back from it.
const (
	Up Direction = iota
	Down
)

// Open listens on loopback. An empty address forwards nothing until Retarget.
func Open(network, address string) (*Relay, error) {
	r, err := open(network, address)
	if err == nil {
		r.begin()
	}
	return r, err
}

func open(network, address string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open relay: %w", err)
	}
	r := &Relay{listener: l, network: network, address: address, pairs: map[*pair]struct{}{}}
	for i := range r.frozen {
		r.frozen[i] = make(chan struct{})
		close(r.frozen[i])
	}
	return r, nil
}

func (r *Relay) begin() { task.Background("relay", r.accept) }

// Close ends the relay and all that goes through it.
func (r *Relay) Close() {
	_ = r.listener.Close() // it only listens; there is nothing to lose
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

// Point sends new connections elsewhere, and leaves a block in place.
func (r *Relay) Point(network, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network, r.address = network, address
}

// Retarget sends new connections elsewhere.
func (r *Relay) Retarget(network, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network, r.address, r.blocked = network, address, false
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
	if blocked {
		r.strike()
	}
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
	up, down := func() { r.copy(server, client, Up) }, func() { r.copy(client, server, Down) }
	if r.postgres {
		up, down = func() { r.copyCommits(p, server, client) }, func() { r.copyAnswers(p, client, server) }
	}
	forward := func(copyAll func()) {
		copyAll()
		done <- struct{}{}
	}
	task.Background("relay upstream", func() { forward(up) })
	task.Background("relay downstream", func() { forward(down) })
	<-done
	r.flowing(Up)
	r.flowing(Down)
	r.mu.Lock()
	held := p.held
	r.mu.Unlock()
	if held != nil {
		<-held
	}
}

// copy forwards until either end is gone. A direction that is frozen holds back the end too.
func (r *Relay) copy(to io.Writer, from io.Reader, way Direction) {
	r.copyThrough(to, from, way, func(b []byte) ([]byte, error) { return b, nil })
}

// copyThrough is copy for what filter keeps. An error of filter ends the copy once that is forwarded.
func (r *Relay) copyThrough(to io.Writer, from io.Reader, way Direction, filter func([]byte) ([]byte, error)) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if d := r.latency(); d > 0 {
				r.strike()
				<-clock.Real().After(d)
			}
			r.flowing(way)
			keep, lost := filter(buf[:n])
			if _, werr := to.Write(keep); werr != nil || lost != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
