package relay

import (
	"math/rand/v2"
	"time"
)

// Block ends all connections and refuses new ones until Unblock.
func (r *Relay) Block() {
	r.refuse()
	r.Cut()
}

// refuse refuses new connections until Unblock.
func (r *Relay) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = true
}

// deafen keeps all further answers from the clients of this moment.
func (r *Relay) deafen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.deaf.Store(true)
	}
}

// Unblock lets new connections through again.
func (r *Relay) Unblock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = false
}

// Freeze holds all bytes back, in both directions, with every connection open: a network that swallows packets.
func (r *Relay) Freeze() {
	r.FreezeWay(Up)
	r.FreezeWay(Down)
}

// FreezeWay is Freeze for one direction. One end that closes its connection meanwhile is not noticed by the other
// before Thaw: it is half open.
func (r *Relay) FreezeWay(way Direction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.frozen[way]:
		r.frozen[way] = make(chan struct{})
	default:
	}
}

// Thaw lets the bytes through again.
func (r *Relay) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, held := range r.frozen {
		select {
		case <-held:
		default:
			close(held)
		}
	}
}

// flowing waits while a direction is frozen.
func (r *Relay) flowing(way Direction) {
	r.mu.Lock()
	held := r.frozen[way]
	r.mu.Unlock()
	select {
	case <-held:
		return
	default:
	}
	r.strike()
	<-held
}

// Delay makes every read of bytes wait before it is passed on; 0 ends it.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Reorder makes every read of bytes wait for a time of its own, up to d, so that one connection overtakes another. The
// order within a connection stays: TCP keeps it. 0 ends it.
func (r *Relay) Reorder(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jitter = d
}

func (r *Relay) latency() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jitter > 0 {
		return r.delay + rand.N(r.jitter)
	}
	return r.delay
}

// strike notes that a fault has met something.
func (r *Relay) strike() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck++
}

// Struck counts what faults have met so far: connections that were ended or refused, and reads that had to wait. A
// fault that leaves it as it was has changed nothing.
func (r *Relay) Struck() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.struck
}

// Cut ends all connections of this moment.
func (r *Relay) Cut() {
	r.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		r.struck++
		p.close()
	}
}

// Abandon ends the clients' side of all present connections and leaves the target's side open. So the target has two
// connections once the client has come back. Heal and Cut end them.
func (r *Relay) Abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if p.server != nil && p.held == nil {
			p.held = make(chan struct{})
			r.struck++
		}
		_ = p.client.Close() // it is to see just that
	}
}

// release lets abandoned connections end.
func (r *Relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if p.held != nil {
			close(p.held)
			p.held = nil
		}
	}
}

// Heal ends every fault. Connections that went through the relay while it was frozen go on.
func (r *Relay) Heal() {
	r.Delay(0)
	r.Reorder(0)
	r.lose(losing{})
	r.Unblock()
	r.Thaw()
	r.release()
}

func (p *pair) close() {
	// Both ends see the connection go; the errors have no other reader.
	_ = p.client.Close()
	if p.server != nil {
		_ = p.server.Close()
	}
}
