package ratelimit

import (
	"container/list"
	"math"
	"net/netip"
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
}

func (l ConnectionLimits) withDefaults() ConnectionLimits {
	for _, n := range []*int{&l.All, &l.Unproven, &l.PerAddress, &l.PerCaller} {
		if *n <= 0 {
			*n = math.MaxInt32
		}
	}
	return l
}

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

// slot is where a connection stands in the books. The zero value is one that is in none.
type slot struct {
	address netip.Addr
	stage   stage
	// inStage and ofAddress are its elements in the two lists of places; nil once it is proven or gone.
	inStage, ofAddress *list.Element
	conn               *Conn
}

// slots are the books of a listener's connections: pure, without clock and lock. Where a bound is reached, the
// connection without progress for the longest time is closed: the one of the same address where that address has its
// share, else one of the same stage. So a stage that is flooded costs the others nothing.
type slots struct {
	limits ConnectionLimits
	open   int
	// stages and addresses hold places, least recent progress first.
	stages    [proven]list.List
	addresses map[netip.Addr]*list.List
}

func newSlots(l ConnectionLimits) *slots {
	return &slots{limits: l, addresses: map[netip.Addr]*list.List{}}
}

// add takes in a connection, and returns those to close for it. Without room it takes in nothing.
func (b *slots) add(p *slot) (victims []*slot, ok bool) {
	gives := func(v *slot) {
		b.remove(v)
		victims = append(victims, v)
	}
	if own := b.addresses[p.address]; own != nil && own.Len() >= b.limits.PerAddress {
		gives(front(own))
	}
	if b.stages[silent].Len() >= b.limits.most(silent) {
		gives(front(&b.stages[silent]))
	}
	if b.open >= b.limits.All {
		least := b.least()
		if least == nil {
			return nil, false
		}
		gives(least)
	}
	if b.addresses[p.address] == nil {
		b.addresses[p.address] = list.New()
	}
	b.open++
	p.stage = silent
	p.ofAddress = b.addresses[p.address].PushBack(p)
	p.inStage = b.stages[silent].PushBack(p)
	return victims, true
}

// least is the connection without a known caller that is lost most easily.
func (b *slots) least() *slot {
	for s := range b.stages {
		if b.stages[s].Len() > 0 {
			return front(&b.stages[s])
		}
	}
	return nil
}

// advance notes progress: a connection enters a stage, or enters it again. It returns the one to close, if any. A
// proven or closed connection stays so.
func (b *slots) advance(p *slot, to stage) (victim *slot) {
	if p.stage >= proven {
		return nil
	}
	b.stages[p.stage].Remove(p.inStage)
	if to == proven {
		b.releaseAddress(p)
		p.stage, p.inStage = proven, nil
		return nil
	}
	if b.stages[to].Len() >= b.limits.most(to) {
		victim = front(&b.stages[to])
		b.remove(victim)
	}
	p.stage = to
	p.inStage = b.stages[to].PushBack(p)
	b.addresses[p.address].MoveToBack(p.ofAddress)
	return victim
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
	own.Remove(p.ofAddress)
	p.ofAddress = nil
	if own.Len() == 0 {
		delete(b.addresses, p.address)
	}
}

// unproven counts the connections without a known caller.
func (b *slots) unproven() (n int) {
	for s := range b.stages {
		n += b.stages[s].Len()
	}
	return n
}

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
