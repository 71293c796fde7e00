package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	_ "github.com/ingot-metal/ingot/agent" // registers the failpoints of agents
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// window is how long a run's traffic lasts.
const window = 800 * time.Millisecond

// plan is what a seed stands for.
type plan struct {
	seed    uint64
	strikes []strike
	clients []script
	// patient says that tries have long limits.
	patient bool
}

// alone says that the strike is the only one of its run: what must follow on it would not, if others broke that too.
func (s strike) alone() bool { return s.kind == "suspend-agent" || s.kind == "elsewhere-agent" }

// strike is one fault to come.
type strike struct {
	at, length time.Duration
	kind       string
	target     int // which agent or controller; taken modulo how many there are
	failpoints string
	nth        int
	// atWork waits first until a machine, the target's own where it has one, is at an effect.
	atWork bool
	// step is by how much a wall clock is set, and stays set when stays is true.
	step  time.Duration
	stays bool
}

// script is what one client does to one machine.
type script struct {
	machine int
	steps   []step
}

type step struct {
	pause  time.Duration
	method check.Method
	// letter names the request; what it asks for is the same whoever asks.
	letter string
	kind   string
	via    int // which controller
}

// The kinds of operations that clients start.
const (
	reboot  = "reboot"
	force   = "reboot-force"
	netboot = "netboot"
	reimage = "reimage"
)

// draw draws a run from these kinds of faults.
func draw(seed uint64, machines int, faults []weight) plan {
	rng := rand.New(rand.NewPCG(seed, 0x1907))
	p := plan{seed: seed}
	for range 1 + rng.IntN(3) {
		p.strikes = append(p.strikes, drawStrike(rng, faults))
	}
	if i := slices.IndexFunc(p.strikes, strike.alone); i >= 0 {
		p.strikes = p.strikes[i : i+1]
		p.patient = p.strikes[0].kind == "suspend-agent"
	}
	kinds := []string{reboot, reboot, reboot, force, netboot, reimage}
	for m := range machines {
		byLetter := map[string]string{}
		for _, l := range []string{"a", "b", "c"} {
			byLetter[l] = kinds[rng.IntN(len(kinds))]
		}
		for range 2 {
			p.clients = append(p.clients, drawScript(rng, m, byLetter))
		}
	}
	return p
}

func drawScript(rng *rand.Rand, machine int, byLetter map[string]string) script {
	s := script{machine: machine}
	for range 5 + rng.IntN(4) {
		letter := string(rune('a' + rng.IntN(3)))
		st := step{pause: time.Duration(rng.IntN(200)) * time.Millisecond, letter: letter, kind: byLetter[letter],
			via: rng.IntN(6)}
		switch n := rng.IntN(100); {
		case n < 50:
			st.method = check.Start
		case n < 62:
			st.method = check.Cancel
			st.pause /= 8 // right behind whatever began
		case n < 82:
			st.method = check.Get
		case n < 95:
			st.method = check.GetMachine
		default:
			st.method = check.List
		}
		s.steps = append(s.steps, st)
	}
	return s
}

// weight says how often a kind of fault is drawn.
type weight struct {
	kind string
	n    int
}

var weights = []weight{
	{"kill-agent", 12},
	{"kill-controller", 7},
	{"kill-postgres", 3},
	{"stop-agent", 6},
	{"stop-controller", 6},
	{"stop-postgres", 4},
	{"cut-agent", 9},
	{"flap-agent", 7},
	{"swallow-agent", 5},
	{"half-open-up-agent", 3},
	{"half-open-down-agent", 3},
	{"delay-agent", 5},
	{"duplicate-agent", 6},
	{"cut-postgres", 4},
	{"swallow-postgres", 3},
	{"delay-postgres", 4},
	{"half-open-down-postgres", 2},
	{"cut-client", 4},
	{"swallow-client", 3},
	{"delay-client", 3},
	{"forget-agent", 10},
	{"rollback-agent", 4},
	{"full-agent", 4},
	{"full-postgres", 3},
	{"reorder-agent", 3},
	{"reorder-postgres", 4},
	{"reorder-client", 2},
	{"repeat-agent", 6},
	{"failpoint-agent", 10},
	{"failpoint-controller", 8},
	{"restore-agent", 8},
	{"clone-agent", 8},
	{"elsewhere-agent", 3},
	{"lie-agent", 14},
}

// clockWeights are of faults that only systems with clocks that can be stepped have.
var clockWeights = []weight{
	{"step-agent", 18},
	{"step-controller", 24},
	{"drift-agent", 6},
	{"drift-controller", 6},
	{"suspend-agent", 14},
}

// weightsOf are the faults that only names, empty for all, in a system with steppable clocks or without.
func weightsOf(only string, steppable bool) []weight {
	all := slices.Clone(weights)
	if steppable {
		all = append(all, clockWeights...)
	}
	named := slices.DeleteFunc(slices.Clone(all),
		func(w weight) bool { return !strings.Contains(","+only+",", ","+w.kind+",") })
	if len(named) == 0 {
		return all // nothing is named, or nothing that this system has
	}
	return named
}

func drawStrike(rng *rand.Rand, weights []weight) strike {
	total := 0
	for _, w := range weights {
		total += w.n
	}
	s := strike{
		at: time.Duration(rng.IntN(600)) * time.Millisecond, length: time.Duration(10+rng.IntN(700)) * time.Millisecond,
		target: rng.IntN(60), nth: 1 + rng.IntN(3)*rng.IntN(2), atWork: rng.IntN(2) == 0,
	}
	n := rng.IntN(total)
	for _, w := range weights {
		if n -= w.n; n < 0 {
			s.kind = w.kind
			break
		}
	}
	actions := []string{"kill", "error", "sleep=40ms"}
	action := actions[rng.IntN(len(actions))]
	names := failpoints(s.kind)
	s.failpoints = fmt.Sprintf("%s=%s", names[rng.IntN(len(names))], action)
	if action != "sleep=40ms" {
		s.failpoints += fmt.Sprintf("@%d", s.nth)
	}
	switch s.kind {
	case "repeat-agent":
		s.failpoints = "wire.command-again=error"
	case "suspend-agent":
		s.failpoints, s.step = holdGrant, 31*time.Second+time.Duration(rng.IntN(7000))*time.Millisecond
	case "step-agent", "step-controller", "drift-agent", "drift-controller":
		s.step = drawStep(rng)
	}
	s.stays = rng.IntN(2) == 0
	return s
}

// drawStep is from seconds to hours, forward or back.
func drawStep(rng *rand.Rand) time.Duration {
	spans := []time.Duration{5 * time.Second, time.Minute, 20 * time.Minute, 6 * time.Hour}
	d := time.Second + time.Duration(rng.Int64N(int64(spans[rng.IntN(len(spans))])))
	if rng.IntN(2) == 0 {
		return -d
	}
	return d
}

// failpoints that a process of the kind passes in its work.
func failpoints(kind string) []string {
	return slices.DeleteFunc(failpoint.Names(), func(n string) bool {
		if strings.HasSuffix(kind, "controller") {
			return !strings.HasPrefix(n, "store.") && !strings.HasPrefix(n, "engine.")
		}
		return !strings.HasPrefix(n, "agent.") || strings.Contains(n, "enroll") || strings.Contains(n, "rotate")
	})
}

func (s strike) String() string {
	return fmt.Sprintf("%v+%v %s %d %s %v %v", s.at.Round(time.Millisecond), s.length.Round(time.Millisecond), s.kind,
		s.target, s.armed(), s.atWork, s.step)
}

// armed are the failpoints of a strike that comes through them.
func (s strike) armed() string {
	if strings.HasPrefix(s.kind, "failpoint-") || s.kind == "repeat-agent" || s.kind == "suspend-agent" {
		return s.failpoints
	}
	return ""
}

const (
	// holdGrant is how long an agent that will be suspended waits with a grant in its hand.
	holdGrant = "agent.after-grant=sleep=1s"
	// freshGrant is how old a grant is at most when the machine is suspended, so that the agent still waits.
	freshGrant = 400 * time.Millisecond
	// patientLimit is the limit of a try where machines are suspended: longer than any suspension.
	patientLimit = 45
)

// promote kills the primary with kill -9 and promotes its synchronous standby, which gets a standby of its own then.
const promote = "promote-standby"

// standbyWeights are of faults that only systems with a standby have.
var standbyWeights = []weight{{promote, 24}}
