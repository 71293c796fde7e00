package script_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// hasty is a clock on which a wait is over at once. The machine's own clock goes on as ever.
type hasty struct {
	clock.Clock

	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
	// during runs in the nth wait, n from 1. False makes it a wait without an end.
	during func(n int) bool
	// stands: no time passes.
	stands bool
}

func (c *hasty) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *hasty) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stands {
		c.now = c.now.Add(d)
	}
}

func (c *hasty) After(d time.Duration) <-chan time.Time {
	c.pass(max(d, time.Millisecond))
	c.waits = append(c.waits, d)
	if c.during != nil && !c.during(len(c.waits)) {
		return nil
	}
	out := make(chan time.Time, 1)
	out <- c.Now()
	return out
}

// hurry sets a clock on which waits end at once.
func (r *rig) hurry(poll time.Duration, during func(n int) bool) *hasty {
	c := &hasty{Clock: clock.Real(), now: r.started, during: during}
	r.cfg.Clock, r.cfg.Poll = c, poll
	r.exec = script.New(r.cfg)
	return c
}

// left reports whether the machine still has a file of the run.
func (r *rig) left(name string) bool {
	_, err := os.Stat(filepath.Join(r.server.Base, "cmd-1", name))
	return err == nil
}

// hasEnded waits until the machine knows how the script has ended.
func (r *rig) hasEnded() {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool { return r.left("exit") }, "the script does not end")
}

// has waits until the machine has kept so many bytes of the standard output.
func (r *rig) has(size int64) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool {
		i, err := os.Stat(filepath.Join(r.server.Base, "cmd-1", "stdout"))
		return err == nil && i.Size() >= size
	}, "the script says nothing")
}

// TestARunIsLookedAtAgain at once in its beginning, then every second, over one connection, for as long as it takes.
func TestARunIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	c := r.hurry(0, nil)
	c.during = func(n int) bool {
		switch n {
		case 1:
			r.has(int64(len("before\n")))
		case 12:
			r.openGate()
			r.hasEnded()
		}
		if open := r.connections(); open != 1 {
			t.Errorf("%d connections in wait %d", open, n)
		}
		return true
	}
	r.wants(r.must(t.Context()), fleetv1.CommandResult_SUCCEEDED, 0)
	const ms, s = time.Millisecond, time.Second
	want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, s, s, s, s, s, s, s}
	if !slices.Equal(c.waits, want) {
		t.Errorf("waited for %v", c.waits)
	}
	if r.writes != 2 || r.connections() != 0 {
		t.Errorf("the intent was written %d times; %d connections are left", r.writes, r.connections())
	}
}

// connections counts those to the machine's SSH server.
func (r *rig) connections() (n int) {
	r.t.Helper()
	raw, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		r.t.Fatal(err)
	}
	_, port, _ := strings.Cut(r.server.Endpoint, ":")
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		// Local address, remote address, state; 01 is ESTABLISHED (proc(5)).
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", number)) && f[3] == "01" {
			n++
		}
	}
	return n
}

// TestTheMachineIsGivenLessTimeThanTheCommand: the rest is for killing the script and reporting it.
func TestTheMachineIsGivenLessTimeThanTheCommand(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int32]string{60_000: "51", 20_000: "15", 400: "1"} {
		r := newRig(t, `tr '\0' ' ' </proc/$PPID/cmdline`)
		r.spec.TimeoutMs = limit
		r.hurry(time.Second, func(int) bool { r.hasEnded(); return true }).stands = true
		r.wants(r.must(t.Context()), fleetv1.CommandResult_SUCCEEDED, 0)
		if f := strings.Fields(r.said("stdout")); len(f) != 5 || f[3] != want {
			t.Errorf("of %d ms the machine has %q, want %s s", limit, f, want)
		}
	}
}

// TestTheAgentsTimeIsUp: the agent kills the script right then, whatever the machine's clock shows.
func TestTheAgentsTimeIsUp(t *testing.T) {
	t.Parallel()
	for _, alsoCanceled := range []bool{false, true} {
		r := newRig(t, watched+`trap '' TERM; echo $$ >"$1"; echo begun; while :; do sleep 300; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		r.hurry(200*time.Second, func(int) bool { r.has(1); return true })
		r.onLog = func(text string) {
			if alsoCanceled && strings.HasPrefix(text, "killing") {
				cancel(executor.ErrCanceled) // too late
			}
		}
		got := r.must(ctx)
		r.wants(got, fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT)
		if !got.Retryable || got.Evidence["duration_ms"] != "591000" {
			t.Errorf("%+v", got)
		}
		r.nothingRuns()
	}
}

// TestACancelWhenTheTimeIsUp is no cancel any more.
func TestACancelWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, watched+`echo $$ >"$1"; echo begun; sleep 300`)
	ctx, cancel := context.WithCancelCause(t.Context())
	c := r.hurry(time.Second, nil)
	c.during = func(int) bool {
		r.has(1)
		c.pass(time.Hour)
		cancel(executor.ErrCanceled)
		return true
	}
	r.wants(r.must(ctx), fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT)
}

// TestTheMachinesTimeIsUp: an agent whose clock is late learns that the machine has ended the script.
func TestTheMachinesTimeIsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, `sleep 300`)
	r.spec.TimeoutMs = 1000
	r.hurry(time.Second, func(int) bool { r.hasEnded(); return true }).stands = true
	r.wants(r.must(t.Context()), fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT)
}

// TestAMachineThatCannotBegin is given five seconds: its disk has kept the script and lost what watches over it.
func TestAMachineThatCannotBegin(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	r.hurry(310*time.Millisecond, nil)
	r.onLog = func(text string) {
		if strings.Contains(text, "is on the machine") {
			if err := os.Truncate(filepath.Join(r.server.Base, "cmd-1", "run"), 0); err != nil {
				t.Error(err)
			}
		}
	}
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED)
	if _, ended := got.Evidence["exit_code"]; ended || !got.Retryable || got.Evidence["duration_ms"] != "5000" ||
		r.ran() != 0 {
		t.Errorf("%+v; it ran %d times", got, r.ran())
	}
}

// watched is the beginning of a script that waits until what watches over it has noted whom it watches. Only then can
// the machine kill it.
const watched = `while [ ! -e "${0%/*}/child" ]; do sleep 0.01; done; `

// unwatched ends what watches over it.
const unwatched = watched + `kill -9 $PPID; `

// TestWhatWatchesOverTheScriptIsGone: the script is waited for, and then its exit code is unknown.
func TestWhatWatchesOverTheScriptIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, unwatched+wait)
	c := r.hurry(time.Second, nil)
	c.during = func(n int) bool {
		if n == 1 {
			r.has(1)
		}
		if n == 15 {
			r.openGate()
			r.has(int64(len("before\nafter\n")))
		}
		return true
	}
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN)
	if len(c.waits) < 15 || got.Evidence["exit_code"] != "" || r.ran() != 1 {
		t.Errorf("it ran %d times, and after %d waits %+v", r.ran(), len(c.waits), got)
	}
}

// TestACancelOfWhatNobodyWatches: killed or not, what came of it is not known.
func TestACancelOfWhatNobodyWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, unwatched+`echo $$ >"$1"; echo begun; sleep 300`)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.hurry(time.Second, func(int) bool {
		r.has(1)
		cancel(executor.ErrCanceled)
		return true
	})
	r.wants(r.must(ctx), fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN)
	r.nothingRuns()
}

// TestACancelThatComesTooLate: the script has ended by itself before it could be killed.
func TestACancelThatComesTooLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.hurry(time.Second, func(int) bool {
		r.has(1)
		cancel(executor.ErrCanceled)
		return true
	})
	r.onLog = func(text string) {
		if strings.HasPrefix(text, "killing") {
			r.openGate()
			r.hasEnded()
		}
	}
	r.wants(r.must(ctx), fleetv1.CommandResult_SUCCEEDED, 0)
	if out := r.said("stdout"); out != "before\nafter\n" {
		t.Errorf("stdout: %q", out)
	}
}

// TestAMachineThatIsStartedAgain runs the script no more, and nothing is killed.
func TestAMachineThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, unwatched+`echo ran >>"$1"; echo begun; kill -9 $$`)
	r.hurry(time.Second, func(n int) bool {
		r.has(1)
		// A boot id of another boot is the only trace that a restart leaves.
		if err := os.WriteFile(filepath.Join(r.server.Base, "cmd-1", "boot"), []byte("another\n"), 0o600); err != nil {
			t.Error(err)
		}
		return true
	})
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED)
	if got.Retryable || !strings.Contains(got.Message, "started again") || strings.Contains(r.said("agent"), "killing") ||
		r.said("stdout") != "begun\n" {
		t.Errorf("%+v; %s", got, r.said("agent"))
	}
}
