package ratelimit

import (
	"container/list"
	"math"
	"net/netip"
	"time"
)

// stage is how far a connection has come.
type stage uint8

// The stages of a connection, in their order.
const (
	// silent: nothing has been received.
	silent stage = iota
	// waiting: it waits for its turn to begin a TLS handshake.
	waiting
	// shaking: its handshake is under way.
	shaking
	// quiet: the handshake is done, and no known caller has shown itself.
	quiet
	// proven: it belongs to a known caller.
	proven
	// gone: it is closed.
	gone
)

// ConnectionLimits bound the connections of one listener; 0 is any number.
type ConnectionLimits struct {
	// All is how many connections are open at a time.
	All int
	// Unproven is how many connections without a known caller have sent nothing yet, and how many wait for their
	// handshake. A quarter of it may be in the handshake, and half of it without a known caller after it: those cost
	// several times as much. A smaller share ends handshakes of a fleet that comes back, which then begin again.
	Unproven int
	// PerAddress is how many of the connections without a known caller come from one IPv4 address or one IPv6 /64.
	PerAddress int
	// PerCaller is how many connections one known caller has, where the listener learns who that is in the handshake.
	PerCaller int
	// HandshakeTime is the time for which no other connection can end a handshake. A handshake that takes longer ends for
	// the next connection that has to wait for its turn. With 0 each handshake beyond the bound ends the oldest one.
	HandshakeTime time.Duration
}

func (l ConnectionLimits) withDefaults() ConnectionLimits {
	for _, n := range []*int{&l.All, &l.Unproven, &l.PerAddress, &l.PerCaller} {
		if *n <= 0 {
			*n = math.MaxInt32
		}
	}
	return l
}

// Handshakes returns how many handshakes may be under way at a time.
func (l ConnectionLimits) Handshakes() int { return l.withDefaults().most(shaking) }

func (l ConnectionLimits) most(s stage) int {
	switch s {
	case shaking:
		return max(1, l.Unproven/4)
	case quiet:
		return max(1, l.Unproven/2)
	default:
		return l.Unproven
	}
}

// slot is the record of a connection in slots. The zero value is a connection that is not counted.
type slot struct {
	address netip.Addr
	stage   stage
	// inStage and ofAddress are its elements in the lists of its stage and of its address; nil once it is proven or gone.
	inStage, ofAddress *list.Element
	// since is the time of its latest progress.
	since time.Time
	conn  *Conn
}

// slots count a listener's connections: pure, without clock and lock. Where a bound is reached, the connection that has
// made no progress for the longest time is closed: of the same address where that has its share, else of the same
// stage. So a stage that is flooded costs the others nothing. A connection that waits for its turn is never closed for
// another one, which is refused instead: a returning fleet would lose its oldest turns to its own newest connections.
type slots struct {
	limits ConnectionLimits
	open   int
	stages stages
	// addresses hold the connections of each address without a known caller.
	addresses map[netip.Addr]*stages
}

// stages hold connections by their stage, least recent progress first.
type stages [proven]list.List

func (s *stages) len() (n int) {
	for i := range s {
		n += s[i].Len()
	}
	return n
}

func newSlots(l ConnectionLimits) *slots {
	return &slots{limits: l, addresses: map[netip.Addr]*stages{}}
}

// add counts a new connection, and returns those that are closed for it. Without room it returns false and counts
// nothing.
func (b *slots) add(p *slot, now time.Time) (victims []*slot, ok bool) {
	gives := func(v *slot) {
		b.remove(v)
		victims = append(victims, v)
	}
	if own := b.addresses[p.address]; own != nil && own.len() >= b.limits.PerAddress {
		least := b.least(own, now)
		if least == nil {
			return nil, false
		}
		gives(least)
	}
	if b.stages[silent].Len() >= b.limits.most(silent) {
		gives(front(&b.stages[silent]))
	}
	if b.open >= b.limits.All {
		least := b.least(&b.stages, now)
		if least == nil {
			return victims, false
		}
		gives(least)
	}
	if b.addresses[p.address] == nil {
		b.addresses[p.address] = &stages{}
	}
	b.open++
	p.stage, p.since = silent, now
	p.ofAddress = b.addresses[p.address][silent].PushBack(p)
	p.inStage = b.stages[silent].PushBack(p)
	return victims, true
}

// least returns the connection of some that is lost most easily; nil where each waits for its turn or has just begun
// its handshake.
func (b *slots) least(of *stages, now time.Time) *slot {
	for _, s := range []stage{silent, quiet} {
		if of[s].Len() > 0 {
			return front(&of[s])
		}
	}
	return b.slow(of, now)
}

// slow returns the oldest handshake of some, if another connection may end it.
func (b *slots) slow(of *stages, now time.Time) *slot {
	if of[shaking].Len() == 0 {
		return nil
	}
	oldest := front(&of[shaking])
	if now.Sub(oldest.since) < b.limits.HandshakeTime {
		return nil
	}
	return oldest
}

// advance records progress: a connection enters a stage, or enters it again. It returns the connections that must be
// closed: one that enters the full queue for turns is closed itself. What is proven or gone stays so.
func (b *slots) advance(p *slot, to stage, now time.Time) (victims []*slot) {
	if p.stage >= proven {
		return nil
	}
	if to == waiting && b.limits.HandshakeTime > 0 {
		if slow := b.slow(&b.stages, now); slow != nil {
			b.remove(slow)
			victims = append(victims, slow)
		}
	}
	if to == waiting && p.stage != waiting && b.stages[waiting].Len() >= b.limits.most(waiting) {
		b.remove(p)
		return append(victims, p)
	}
	b.stages[p.stage].Remove(p.inStage)
	if to == proven {
		b.releaseAddress(p)
		p.stage, p.inStage = proven, nil
		return nil
	}
	if b.stages[to].Len() >= b.limits.most(to) {
		oldest := front(&b.stages[to])
		b.remove(oldest)
		victims = append(victims, oldest)
	}
	own := b.addresses[p.address]
	own[p.stage].Remove(p.ofAddress)
	p.stage, p.since = to, now
	p.inStage, p.ofAddress = b.stages[to].PushBack(p), own[to].PushBack(p)
	return victims
}

// remove takes a connection out.
func (b *slots) remove(p *slot) {
	if p.stage == gone {
		return
	}
	if p.stage < proven {
		b.stages[p.stage].Remove(p.inStage)
		b.releaseAddress(p)
	}
	b.open--
	p.stage, p.inStage = gone, nil
}

func (b *slots) releaseAddress(p *slot) {
	own := b.addresses[p.address]
	own[p.stage].Remove(p.ofAddress)
	p.ofAddress = nil
	if own.len() == 0 {
		delete(b.addresses, p.address)
	}
}

// unproven counts the connections without a known caller.
func (b *slots) unproven() int { return b.stages.len() }

func front(l *list.List) *slot {
	p, ok := l.Front().Value.(*slot)
	if !ok {
		panic("ratelimit: a list of slots holds something else")
	}
	return p
}

// shareOf is what counts as one address: hosts have whole /64 of IPv6.
func shareOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a // of no family; all of those share
	}
	return p.Addr()
}
