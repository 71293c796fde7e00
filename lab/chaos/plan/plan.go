package plan

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

// Window is how long a run's traffic lasts.
const Window = 800 * time.Millisecond

// Plan is what a seed stands for.
type Plan struct {
	Seed    uint64
	Strikes []Strike
	Clients []Script
	// Patient is set when tries have long limits.
	Patient bool
	// Window is how long the traffic lasts.
	Window time.Duration
	// Limit is that of a try in seconds, where the run has one of its own; else 0.
	Limit int32
	// Anew is when the reader of the cursor begins anew, where it does; else 0.
	Anew time.Duration
	// Rollout is nil where the run has none.
	Rollout *Rollout
}

// Alone reports whether the strike is the only one of its run: what must follow on it would not, if others broke that
// too.
func (s Strike) Alone() bool { return s.Suspends() || s.Kind == "elsewhere-agent" }

// CopiesFirst reports whether the strike copies an agent's memory and puts the copy back later. With AtWork that is
// once something was begun of which the copy knows nothing.
func (s Strike) CopiesFirst() bool { return s.Kind == "rollback-agent" || s.Kind == "restore-agent" }

// Suspends reports whether the strike suspends a machine.
func (s Strike) Suspends() bool { return s.Kind == "suspend-agent" || s.Kind == SuspendAsking }

// SuspendAsking suspends a machine while the grant that its agent has asked for is on its way.
const SuspendAsking = "suspend-asking-agent"

// Strike is one fault to come.
type Strike struct {
	At, Length time.Duration
	Kind       string
	Target     int // which agent or controller; taken modulo how many there are
	failpoints string
	nth        int
	// AtWork waits first until a machine, the target's own where it has one, is at an effect.
	AtWork bool
	// Step is by how much a wall clock is set, and stays set when stays is true.
	Step  time.Duration
	Stays bool
}

// Script is what one client does to one machine.
type Script struct {
	Machine int
	Steps   []step
}

type step struct {
	Pause  time.Duration
	Method check.Method
	// Letter names the request; its content is the same for every client.
	Letter string
	Kind   string
	Via    int // which controller
}

// The kinds of operations that clients start.
const (
	reboot  = "reboot"
	Force   = "reboot-force"
	Netboot = "netboot"
	Reimage = "reimage"
)

// Draw draws a run from these kinds of faults.
func Draw(seed uint64, machines int, faults []Weight) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x1907))
	p := Plan{Seed: seed, Window: Window}
	for range 1 + rng.IntN(3) {
		p.Strikes = append(p.Strikes, drawStrike(rng, faults))
	}
	if i := slices.IndexFunc(p.Strikes, Strike.Alone); i >= 0 {
		p.Strikes = p.Strikes[i : i+1]
		p.Patient = p.Strikes[0].Suspends()
	}
	p.Anew = drawAnew(rng, Window)
	kinds := []string{reboot, reboot, reboot, Force, Netboot, Reimage}
	for m := range machines {
		byLetter := map[string]string{}
		for _, l := range []string{"a", "b", "c"} {
			byLetter[l] = kinds[rng.IntN(len(kinds))]
		}
		for range 2 {
			p.Clients = append(p.Clients, drawScript(rng, m, byLetter))
		}
	}
	return p
}

// drawAnew has the reader begin anew in half of the runs.
func drawAnew(rng *rand.Rand, window time.Duration) time.Duration {
	return time.Duration(rng.IntN(2)) * time.Duration(rng.Int64N(int64(window)))
}

func drawScript(rng *rand.Rand, machine int, byLetter map[string]string) Script {
	s := Script{Machine: machine}
	for range 5 + rng.IntN(4) {
		letter := string(rune('a' + rng.IntN(3)))
		st := step{Pause: time.Duration(rng.IntN(200)) * time.Millisecond, Letter: letter, Kind: byLetter[letter],
			Via: rng.IntN(6)}
		switch n := rng.IntN(100); {
		case n < 50:
			st.Method = check.Start
		case n < 62:
			st.Method = check.Cancel
			st.Pause /= 8 // right behind whatever began
		case n < 82:
			st.Method = check.Get
		case n < 95:
			st.Method = check.GetMachine
		default:
			st.Method = check.List
		}
		s.Steps = append(s.Steps, st)
	}
	return s
}

// Weight is how often a kind of fault is drawn.
type Weight struct {
	Kind string
	n    int
}

// Weights say how often each fault is drawn.
var Weights = []Weight{
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
	{"lost-commit-postgres", 3},
	{"lost-answer-postgres", 5},
	{"cut-client", 4},
	{"swallow-client", 3},
	{"delay-client", 3},
	{"forget-agent", 10},
	{"rollback-agent", 4},
	{"full-agent", 8},
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

// ClockWeights are of faults that only systems with clocks that can be stepped have.
var ClockWeights = []Weight{
	{"step-agent", 18},
	{"step-controller", 24},
	{"drift-agent", 6},
	{"drift-controller", 6},
	{"suspend-agent", 14},
	{SuspendAsking, 14},
}

// WeightsOf are the faults that only names, empty for all, in a system with steppable clocks or without.
func WeightsOf(only string, steppable bool) []Weight {
	all := slices.Clone(Weights)
	if steppable {
		all = append(all, ClockWeights...)
	}
	return named(all, only)
}

// WideWeightsOf are the faults that only names, empty for all, in a wide world.
func WideWeightsOf(only string) []Weight { return named(WideWeights, only) }

// named returns the faults that only names; all where it names none, or none that this system has.
func named(all []Weight, only string) []Weight {
	out := slices.DeleteFunc(slices.Clone(all),
		func(w Weight) bool { return !strings.Contains(","+only+",", ","+w.Kind+",") })
	if len(out) == 0 {
		return all
	}
	return out
}

func drawStrike(rng *rand.Rand, weights []Weight) Strike {
	total := 0
	for _, w := range weights {
		total += w.n
	}
	s := Strike{
		At: time.Duration(rng.IntN(600)) * time.Millisecond, Length: time.Duration(10+rng.IntN(700)) * time.Millisecond,
		Target: rng.IntN(60), nth: 1 + rng.IntN(3)*rng.IntN(2), AtWork: rng.IntN(2) == 0,
	}
	n := rng.IntN(total)
	for _, w := range weights {
		if n -= w.n; n < 0 {
			s.Kind = w.Kind
			break
		}
	}
	actions := []string{"kill", "error", "sleep=40ms"}
	action := actions[rng.IntN(len(actions))]
	names := failpoints(s.Kind)
	s.failpoints = fmt.Sprintf("%s=%s", names[rng.IntN(len(names))], action)
	if action != "sleep=40ms" {
		s.failpoints += fmt.Sprintf("@%d", s.nth)
	}
	switch s.Kind {
	case "repeat-agent":
		s.failpoints = "wire.command-again=error"
	case SuspendAsking:
		s.failpoints, s.Step = holdAsk, 31*time.Second+time.Duration(rng.IntN(7000))*time.Millisecond
	case "suspend-agent":
		s.failpoints, s.Step = holdGrant, 31*time.Second+time.Duration(rng.IntN(7000))*time.Millisecond
	case "step-agent", "step-controller", "drift-agent", "drift-controller":
		s.Step = drawStep(rng)
	}
	s.Stays = rng.IntN(2) == 0
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

// String is the strike as a report names it.
func (s Strike) String() string {
	return fmt.Sprintf("%v+%v %s %d %s %v %v", s.At.Round(time.Millisecond), s.Length.Round(time.Millisecond), s.Kind,
		s.Target, s.Armed(), s.AtWork, s.Step)
}

// Armed are the failpoints of a strike that comes through them.
func (s Strike) Armed() string {
	if strings.HasPrefix(s.Kind, "failpoint-") || s.Kind == "repeat-agent" || s.Suspends() {
		return s.failpoints
	}
	return ""
}

const (
	// holdGrant is how long an agent that will be suspended waits with a grant in its hand.
	holdGrant = "agent.after-grant=sleep=1s"
	// holdAsk is how long an agent waits with an ask that has its number and was not sent.
	holdAsk = "agent.before-grant-request=sleep=1s"
	// Held is how long both hold an agent.
	Held = time.Second
	// FreshGrant is how old a grant is at most when the machine is suspended, so that the agent still waits.
	FreshGrant = 400 * time.Millisecond
	// PatientLimit is the limit of a try where machines are suspended: longer than any suspension.
	PatientLimit = 45
)

// Promote kills the primary with kill -9 and promotes its synchronous standby, which gets a standby of its own then.
const Promote = "promote-standby"

// StandbyWeights are of faults that only systems with a standby have.
var StandbyWeights = []Weight{{Promote, 24}}
