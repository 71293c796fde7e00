package probe

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

var own, foreign = segment.MAC{2, 0, 0, 0, 0, 1}, segment.MAC{2, 0, 0, 0, 0, 2}

// machine is a port on loopback, and what the segment knows of its address.
type machine struct {
	listener net.Listener
	port     uint16

	mu        sync.Mutex
	neighbour Neighbour
	known     bool
	leased    bool
	seen      []Answer
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // may be closed
	return &machine{listener: l, port: uint16(l.Addr().(*net.TCPAddr).Port), leased: true}
}

func (m *machine) prober(t *testing.T, every time.Duration) *Prober {
	return New(Config{
		Leased: func(mac segment.MAC) (netip.Addr, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return netip.MustParseAddr("127.0.0.1"), m.leased && mac == own
		},
		Neighbour: func(netip.Addr) (Neighbour, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.neighbour, m.known
		},
		Report: func(_ Target, a Answer) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.seen = append(m.seen, a)
		},
		Clock: clock.Real(), Log: testkit.Logger(t), Every: every, Port: m.port, Patience: time.Second,
	})
}

var target = Target{MachineID: "m-1", MACs: []segment.MAC{own}}

func TestHowAMachineAnswers(t *testing.T) {
	m := newMachine(t)
	p := m.prober(t, time.Hour)
	ask := func(want string, at Target) {
		t.Helper()
		if a := p.Ask(t.Context(), at); a.By != want {
			t.Errorf("answered by %q, want %q", a.By, want)
		}
	}
	ask(ByOpen, target)
	m.neighbour, m.known = Neighbour{MAC: foreign, Fresh: true}, true
	ask("", target)
	m.neighbour = Neighbour{MAC: own, Fresh: true}
	ask(ByOpen, target)
	if err := m.listener.Close(); err != nil {
		t.Fatal(err)
	}
	ask(ByRefused, target)
	m.leased = false
	ask("", target)
	at := target
	at.Address = netip.MustParseAddr("127.0.0.1")
	ask(ByRefused, at)
	// Where no answer comes in time, the kernel's word on the card counts.
	p.cfg.Patience = time.Nanosecond
	ask(ByARP, at)
	m.neighbour.Fresh = false
	ask("", at)
}

// TestOneMissIsNoSilence: and the word comes again with each answer.
func TestOneMissIsNoSilence(t *testing.T) {
	m := newMachine(t)
	p := m.prober(t, 10*time.Millisecond)
	p.Replace([]Target{target})
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := task.New(ctx)
	g.Go("prober", p.Run)
	last := func() (Answer, int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.seen) == 0 {
			return Answer{}, 0
		}
		return m.seen[len(m.seen)-1], len(m.seen)
	}
	testkit.Eventually(t, time.Minute, func() bool { a, n := last(); return a.By == ByOpen && n > 2 }, "no answer")
	m.mu.Lock()
	m.leased = false
	m.mu.Unlock()
	testkit.Eventually(t, time.Minute, func() bool { a, _ := last(); return a.By == "" }, "no silence")
	cancel()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	p.missed = map[string]int{}
	if p.certain(target, Answer{}) {
		t.Error("one miss counts as silence")
	}
	if !p.certain(target, Answer{}) {
		t.Error("two misses do not")
	}
}

// TestFirmwareIsNoSystem: it may refuse connections for a while, and is no proof; a connection that is taken is.
func TestFirmwareIsNoSystem(t *testing.T) {
	m := newMachine(t)
	if err := m.listener.Close(); err != nil {
		t.Fatal(err)
	}
	p := m.prober(t, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if a, err := p.AwaitSystem(ctx, target, 10*time.Millisecond); err == nil {
		t.Errorf("refused connections prove a system: %+v", a)
	}
	l, err := net.Listen("tcp4", m.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nothing was taken
	if a, err := p.AwaitSystem(t.Context(), target, 10*time.Millisecond); err != nil || a.By != ByOpen || a.At.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
}
