package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// mostRefused BMCs in a row that refuse the credentials end their use: they are wrong, and accounts may be kept at one
// place for all.
const mostRefused = 3

// outcome of a log-in.
type outcome int

const (
	taken   outcome = iota // the credentials
	refused                // them
	unknown                // it did not come to that
)

// gate decides whether one more BMC may be logged in to. It is safe for concurrent use.
type gate struct {
	mu   sync.Mutex
	turn *sync.Cond
	// open is set once a BMC has accepted the credentials.
	open     bool
	underWay int
	// inARow are the BMCs that have refused them since one took them.
	inARow []netip.Addr
}

func newGate() *gate {
	g := &gate{}
	g.turn = sync.NewCond(&g.mu)
	return g
}

// enter waits until a log-in may begin, and reports whether it may at all. Leave must be called then.
func (g *gate) enter(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.turn.Broadcast()
	})()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil || len(g.inARow) >= mostRefused:
			return false
		case g.open || g.underWay+len(g.inARow) < mostRefused:
			g.underWay++
			return true
		}
		g.turn.Wait()
	}
}

// leave takes how a log-in went.
func (g *gate) leave(o outcome, at netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay--
	switch o {
	case taken:
		g.open = true
		if len(g.inARow) < mostRefused {
			g.inARow = nil
		}
	case refused:
		g.inARow = append(g.inARow, at)
	case unknown:
	}
	g.turn.Broadcast()
}

// problem names the BMCs that have ended the use of the credentials; empty where none have.
func (g *gate) problem(ref string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inARow) < mostRefused {
		return ""
	}
	var names []string
	for _, a := range g.inARow[:mostRefused] {
		names = append(names, a.String())
	}
	return fmt.Sprintf("%d BMCs in a row have refused the credentials %s (%s), which were sent to no other after that",
		mostRefused, ref, strings.Join(names, ", "))
}
