package plan

import (
	"math/rand/v2"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// The machines of a wide world. One agent of their site acts on all of them.
const (
	// WideMachines are those that clients call operations on; so many make the controllers decide on whole sets.
	WideMachines = 64
	// RolloutMachines are those that only rollouts act on.
	RolloutMachines = 16
	// BudgetSlots bounds the reimages of a wide world at a time.
	BudgetSlots = 12
)

// WideWindow is how long the traffic of a wide run lasts.
const WideWindow = 1500 * time.Millisecond

// shortLimit is a limit of a try, in seconds, that a stopped process or a lost way lets pass.
const shortLimit = 1

// IsWide reports whether a seed stands for a run in a wide world: one in every. With every 0 none is.
func IsWide(seed uint64, every int) bool { return every > 0 && seed%uint64(every) == uint64(every-1) }

// WideWeights are of the faults of wide worlds. Their only agent is that of a site.
var WideWeights = []Weight{
	{"kill-agent", 10},
	{"kill-controller", 8},
	{"kill-postgres", 4},
	{"stop-agent", 8},
	{"stop-controller", 8},
	{"stop-postgres", 4},
	{"cut-agent", 8},
	{"flap-agent", 4},
	{"swallow-agent", 5},
	{"delay-agent", 3},
	{"duplicate-agent", 3},
	{"cut-postgres", 4},
	{"swallow-postgres", 4},
	{"delay-postgres", 4},
	{"reorder-postgres", 4},
	{"lost-commit-postgres", 6},
	{"lost-answer-postgres", 8},
	{"cut-client", 3},
	{"forget-agent", 6},
	{"rollback-agent", 5},
	{"restore-agent", 5},
	{"clone-agent", 4},
	{"full-agent", 16},
	{"full-postgres", 3},
	{"failpoint-agent", 8},
	{"failpoint-controller", 8},
}

// Rollout is a wave rollout of reboots that a run begins.
type Rollout struct {
	Canary, Percent, AtOnce, Failures int32
	// At is when it is asked for.
	At time.Duration
}

// DrawWide draws a run of a wide world from these kinds of faults.
func DrawWide(seed uint64, faults []Weight) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x51de))
	p := Plan{Seed: seed, Window: WideWindow}
	for range 1 + rng.IntN(3) {
		s := drawStrike(rng, faults)
		if rng.IntN(2) == 0 {
			s.Length *= 4 // longer than a short limit of a try
		}
		p.Strikes = append(p.Strikes, s)
	}
	if rng.IntN(2) == 0 {
		p.Limit = shortLimit
	}
	if rng.IntN(2) == 0 {
		p.Rollout = &Rollout{
			Canary: int32(1 + rng.IntN(3)), Percent: int32(30 + rng.IntN(50)), AtOnce: int32(1 + rng.IntN(5)),
			Failures: int32(1 + rng.IntN(3)), At: time.Duration(rng.IntN(600)) * time.Millisecond,
		}
	}
	p.Anew = drawAnew(rng, WideWindow)
	kinds := []string{reboot, reboot, reboot, Force, Reimage, Reimage}
	for m := range WideMachines {
		p.Clients = append(p.Clients, drawWideScript(rng, m, kinds))
	}
	return p
}

// drawWideScript draws one or two starts of operations, at about the same time as those of other machines, and what
// may follow on them.
func drawWideScript(rng *rand.Rand, machine int, kinds []string) Script {
	s := Script{Machine: machine}
	byLetter := map[string]string{"a": kinds[rng.IntN(len(kinds))], "b": kinds[rng.IntN(len(kinds))]}
	add := func(st step, pause time.Duration) {
		st.Kind, st.Pause, st.Via = byLetter[st.Letter], time.Duration(rng.Int64N(int64(pause))), rng.IntN(6)
		s.Steps = append(s.Steps, st)
	}
	add(step{Method: check.Start, Letter: "a"}, 200*time.Millisecond)
	switch rng.IntN(5) {
	case 0:
		add(step{Method: check.Cancel, Letter: "a"}, 300*time.Millisecond)
	case 1:
		add(step{Method: check.Start, Letter: "a"}, 100*time.Millisecond)
	case 2:
		add(step{Method: check.Get, Letter: "a"}, 300*time.Millisecond)
	}
	if rng.IntN(2) == 0 {
		add(step{Method: check.Start, Letter: "b"}, 900*time.Millisecond)
	}
	add(step{Method: check.GetMachine, Letter: "a"}, 300*time.Millisecond)
	return s
}
