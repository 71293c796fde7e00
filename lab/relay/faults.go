package relay

import "time"

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
	r.FreezeWay(Up)
	r.FreezeWay(Down)
}

// FreezeWay is Freeze for one direction. One end that closes its connection meanwhile is not noticed by the other before
// Thaw: it is half open.
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
	<-held
}

// Delay makes every read of bytes wait before it is passed on; 0 ends it.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *Relay) latency() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.delay
}

// Cut ends all connections of this moment.
func (r *Relay) Cut() {
	r.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.close()
	}
}

// Abandon ends the clients' side of all connections of this moment and leaves the target's side open, so that it has two
// connections once the client has come back. Heal and Cut end them.
func (r *Relay) Abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if p.server != nil && p.held == nil {
			p.held = make(chan struct{})
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
	r.Unblock()
	r.Thaw()
	r.release()
}

func (p *pair) close() {
	// Both ends see the connection go; there is nobody else to tell.
	_ = p.client.Close()
	if p.server != nil {
		_ = p.server.Close()
	}
}
