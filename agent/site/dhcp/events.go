package dhcp

import (
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Unknown is a card on a segment that has no assignment. All but MAC and Address are its own claims.
type Unknown struct {
	Segment string
	MAC     segment.MAC
	// Address is what it was offered or has; the zero value when another server assigns the addresses.
	Address     netip.Addr
	Program     Program
	Arch        iana.Arch
	VendorClass string
	Hostname    string
	UUID        string
}

// Foreign is another DHCP server on a segment. Beside a full server it must not be; beside a proxy one is needed.
type Foreign struct {
	Segment string
	// Server is its identifier (option 54).
	Server netip.Addr
	// MAC is the card that its answer came from; the zero value when only a client spoke of it.
	MAC segment.MAC
	// ChosenBy is the client that preferred it to us, where that is how it showed.
	ChosenBy segment.MAC
	// Proxy is set when it sends boot files and no addresses.
	Proxy bool
}

// How much of what strangers do is passed on.
const (
	// repeatAfter is how long after a report the same is reported again.
	repeatAfter = time.Minute
	// remembered is how many reports are remembered for that; more at a time are dropped.
	remembered = 4096
	// perSecond and burst bound the reports of all strangers together.
	perSecond, burst = 20, 200
	// waiting is how many reports may wait for a callback that is slow.
	waiting = 256
)

// limiter lets the same thing through once in a while, and all things together at a bounded rate. What it remembers is
// bounded too.
type limiter struct {
	last   map[string]time.Time
	tokens float64
	filled time.Time
}

func newLimiter() *limiter { return &limiter{last: map[string]time.Time{}, tokens: burst} }

func (l *limiter) allow(key string, now time.Time) bool {
	if at, ok := l.last[key]; ok && now.Sub(at) < repeatAfter && !now.Before(at) {
		return false
	}
	l.tokens = min(burst, l.tokens+perSecond*max(0, now.Sub(l.filled).Seconds()))
	l.filled = now
	if l.tokens < 1 {
		return false
	}
	if len(l.last) >= remembered {
		l.forget(now)
	}
	if len(l.last) >= remembered {
		return false
	}
	l.tokens--
	l.last[key] = now
	return true
}

func (l *limiter) forget(now time.Time) {
	for key, at := range l.last {
		if now.Sub(at) >= repeatAfter || now.Before(at) {
			delete(l.last, key)
		}
	}
}
