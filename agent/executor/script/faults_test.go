package script_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// behind puts a line that can be cut between the agent and the machine.
func (r *rig) behind() *sshtest.Proxy {
	p := sshtest.NewProxy(r.t, r.server.Endpoint)
	r.spec.GetScript().Endpoint = p.Endpoint
	return p
}

// before runs when the script is on the machine and not yet started.
func before(ctx context.Context, do func()) context.Context {
	fp := failpoint.NewScope()
	fp.Set(script.BeforeStart.Name(), failpoint.Call(func(context.Context) error { do(); return nil }))
	return failpoint.With(ctx, fp)
}

// TestALineThatIsCutAtTheStart: starting again starts at most once, and a machine that stays away leaves it unknown.
func TestALineThatIsCutAtTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blocked bool
		opens   int
		outcome fleetv1.CommandResult_Outcome
		ran     int
	}{
		"for a moment": {false, 0, fleetv1.CommandResult_SUCCEEDED, 1},
		"for a while":  {true, 2, fleetv1.CommandResult_SUCCEEDED, 1},
		"for good":     {true, 1 << 30, fleetv1.CommandResult_UNKNOWN, 0},
	} {
		r := newRig(t, `echo ran >>"$1"`)
		r.spec.TimeoutMs = 60_000
		p := r.behind()
		clock := r.hurry(time.Second, func(n int) bool {
			if n == c.opens {
				p.Open()
			}
			return true
		})
		r.wants(r.must(before(t.Context(), func() { p.Cut(c.blocked) })), c.outcome,
			unless(c.ran, baremetalv1.Reason_OUTCOME_UNKNOWN))
		if r.ran() != c.ran || c.blocked && clock.waits[0] != time.Second {
			t.Errorf("%s: it ran %d times, after waits of %v", name, r.ran(), clock.waits)
		}
	}
}

func unless(ran int, reason baremetalv1.Reason) baremetalv1.Reason {
	if ran > 0 {
		return 0
	}
	return reason
}

// TestALineThatIsCutWhileItIsRead: the script has ended, and its log still becomes whole.
func TestALineThatIsCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, `echo to stdout; echo to stderr >&2`)
	p := r.behind()
	r.hurry(time.Second, func(int) bool { r.hasEnded(); return true })
	cut := false
	r.onOutput = func(string) {
		if !cut {
			p.Cut(false)
		}
		cut = true
	}
	r.wants(r.must(before(t.Context(), func() {})), fleetv1.CommandResult_SUCCEEDED, 0)
	if r.said("stdout") != "to stdout\n" || r.said("stderr") != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", r.said("stdout"), r.said("stderr"))
	}
}

// TestLongOutputComesInPieces: whole lines, some 16 KiB at a time, and a line without an end as soon as it is as long.
func TestLongOutputComesInPieces(t *testing.T) {
	t.Parallel()
	r := newRig(t, `seq -f %015g 5000; while [ ! -e "$1.gate" ]; do sleep 0.1; done`)
	r.hurry(time.Second, func(n int) bool {
		r.has(5000 * 16)
		if n == 2 {
			r.openGate()
			r.hasEnded()
		}
		return true
	})
	r.wants(r.must(t.Context()), fleetv1.CommandResult_SUCCEEDED, 0)
	sum, most := 0, 0
	for _, n := range r.pieces["stdout"] {
		sum, most = sum+n, max(most, n)
	}
	if sum != 5000*16 || most != 16<<10 {
		t.Errorf("%d bytes in pieces of %v", sum, r.pieces["stdout"])
	}

	r = newRig(t, `head -c 16384 /dev/zero | tr '\0' x; while [ ! -e "$1.gate" ]; do sleep 0.1; done`)
	r.hurry(time.Second, func(n int) bool {
		r.has(16384)
		if n == 3 {
			if x := strings.Count(r.said("stdout"), "x"); x != 3*4096 {
				t.Errorf("of a line without an end the log has %d bytes", x)
			}
			r.openGate()
			r.hasEnded()
		}
		return true
	})
	r.wants(r.must(t.Context()), fleetv1.CommandResult_SUCCEEDED, 0)
	if x := strings.Count(r.said("stdout"), "x"); x != 16384 {
		t.Errorf("the log has %d bytes", x)
	}
}

// TestALineInTwoLives: half a line that the agent has read before it stopped is read again with the other half.
func TestALineInTwoLives(t *testing.T) {
	t.Parallel()
	r := newRig(t, `printf 'one\nhalf a '; while [ ! -e "$1.gate" ]; do sleep 0.1; done; echo line`)
	ctx, stop := context.WithCancelCause(t.Context())
	r.hurry(time.Second, func(n int) bool {
		r.has(int64(len("one\nhalf a ")))
		if n < 4 {
			return true
		}
		if n > 4 {
			t.Error("an agent that stops goes on")
			r.openGate()
		}
		stop(executor.ErrShutdown)
		return n > 4
	})
	if got, err := r.do(ctx, t.Context()); !errors.Is(err, executor.ErrInterrupted) {
		t.Fatalf("the agent stops: %+v %v", got, err)
	}
	hard, stop := context.WithCancelCause(t.Context())
	r.hurry(time.Second, func(int) bool { stop(executor.ErrShutdown); return false })
	if v, err := r.exec.Resume(hard, r.job(hard)); !errors.Is(err, executor.ErrInterrupted) {
		t.Fatalf("it stops once more: %+v %v", v, err)
	}
	r.hurry(time.Second, nil)
	r.openGate()
	r.hasEnded()
	if v := r.resume(); v.Settled == nil || v.Settled.Outcome != fleetv1.CommandResult_SUCCEEDED ||
		r.said("stdout") != "one\nhalf a line\n" {
		t.Errorf("%+v; stdout %q", v, r.said("stdout"))
	}
	if open := r.connections(); open != 0 {
		t.Errorf("%d connections are left", open)
	}
}

// TestAMachineThatIsAwayAfterARestart is asked until it answers; one that refuses the log-in is unknown at once.
func TestAMachineThatIsAwayAfterARestart(t *testing.T) {
	t.Parallel()
	stranger, _ := sshtest.Key(t)
	later := failure.Unavailable("CONTROLLER_DRAINING", "later")
	for name, c := range map[string]struct {
		login func(n int) (key []byte, err error)
		cut   bool
		waits int
		goOn  bool
	}{
		"the line is cut": {nil, true, 2, true},
		"the controller is away": {func(n int) ([]byte, error) { return nil, []error{later, later, nil}[n-1] }, false, 2,
			true},
		"the key is another": {func(int) ([]byte, error) { return stranger, nil }, false, 0, false},
		"there are no credentials": {func(int) ([]byte, error) { return nil, failure.NotFound("X", "gone") }, false, 0,
			false},
		"the controller stays away": {func(int) ([]byte, error) { return nil, later }, false, 591, false},
	} {
		r := newRig(t, wait)
		r.prepare()
		asked, p := 0, r.behind()
		if c.login != nil {
			r.cfg.Credentials = func(context.Context, string, string) (ssh.Credentials, error) {
				asked++
				key, err := c.login(asked)
				if key == nil {
					key = r.server.PrivateKey
				}
				return ssh.Credentials{Username: r.server.Username, PrivateKey: key}, err
			}
		}
		if c.cut {
			p.Cut(true)
		}
		clock := r.hurry(time.Second, func(n int) bool {
			if n == c.waits {
				p.Open()
			}
			return true
		})
		v := r.resume()
		if v.GoOn != c.goOn || !c.goOn && v.Settled.Outcome != fleetv1.CommandResult_UNKNOWN || len(clock.waits) != c.waits ||
			r.ran() != 0 {
			t.Errorf("%s: %+v after %d waits", name, v, len(clock.waits))
		}
	}
	r := newRig(t, wait)
	r.prepare()
	r.behind().Cut(true)
	ctx, stop := context.WithCancelCause(t.Context())
	r.hurry(time.Second, func(int) bool { stop(executor.ErrShutdown); return false })
	if v, err := r.exec.Resume(ctx, r.job(ctx)); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("the agent stops while it waits: %+v %v", v, err)
	}
}

// TestAMachineThatBecomesAnother while its script runs is not asked any more.
func TestAMachineThatBecomesAnother(t *testing.T) {
	t.Parallel()
	_, other := sshtest.Key(t)
	r := newRig(t, wait)
	p := r.behind()
	clock := r.hurry(time.Second, nil)
	clock.during = func(n int) bool {
		if n == 2 {
			r.spec.GetScript().HostKeys = []string{fingerprint(other)}
			p.Cut(false)
		}
		return true
	}
	got := r.must(t.Context())
	r.openGate()
	testkit.Eventually(t, patience, func() bool { // its end is never asked for, and its directory is the test's
		_, err := os.Stat(filepath.Join(r.server.Base, "cmd-1", "exit"))
		return err == nil
	}, "the script does not end")
	r.wants(got, fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN)
	if len(clock.waits) != 3 || !strings.Contains(got.Message, "cannot be asked any more") {
		t.Errorf("%q after %d waits", got.Message, len(clock.waits))
	}
}

// TestNothingIsStartedAfterAnError on the way there: the reason is the error's.
func TestNothingIsStartedAfterAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(*rig)
		reason    baremetalv1.Reason
		retryable bool
		says      string
	}{
		"the script is gone": {func(r *rig) {
			r.cfg.Open = func(context.Context, string) (io.ReadCloser, error) {
				return nil, failure.NotFound("IMAGE_UNAVAILABLE", "gone")
			}
		}, baremetalv1.Reason_IMAGE_UNAVAILABLE, false, "gone"},
		"no credentials": {func(r *rig) {
			r.cfg.Credentials = func(context.Context, string, string) (ssh.Credentials, error) {
				return ssh.Credentials{}, errors.New("i/o")
			}
		}, baremetalv1.Reason_SSH_UNREACHABLE, true, "ask for SSH credentials: i/o"},
		"no place on the machine": {func(r *rig) {
			r.cfg.Base = r.file
			if err := os.WriteFile(r.file, nil, 0o600); err != nil {
				r.t.Error(err)
			}
		}, baremetalv1.Reason_EXECUTION_FAILED, false, "the directory of runs could not be made"},
	} {
		r := newRig(t, `echo ran >>"$1"`)
		r.prepare()
		c.change(r)
		r.hurry(time.Second, nil)
		got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.wants(got, fleetv1.CommandResult_FAILED, c.reason)
		if got.Retryable != c.retryable || !strings.Contains(got.Message, c.says) || r.ran() != 0 {
			t.Errorf("%s: %+v; it ran %d times", name, got, r.ran())
		}
	}
}

// TestAnAgentThatStopsBeforeTheStart starts nothing and reports nothing.
func TestAnAgentThatStopsBeforeTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	ctx, stop := context.WithCancelCause(t.Context())
	got, err := r.do(before(ctx, func() { stop(executor.ErrShutdown) }), t.Context())
	if !errors.Is(err, executor.ErrInterrupted) || r.ran() != 0 {
		t.Errorf("%+v %v; it ran %d times", got, err, r.ran())
	}
}

// TestTheIntentCannotBeWritten: the run goes on, and a log line warns that lines may come twice.
func TestTheIntentCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, `echo said`)
	r.unwritten = errors.New("disk full")
	r.hurry(time.Second, func(int) bool { r.hasEnded(); return true })
	r.wants(r.must(t.Context()), fleetv1.CommandResult_SUCCEEDED, 0)
	if !strings.Contains(r.said("agent"), "lines may come twice") || r.said("stdout") != "said\n" {
		t.Errorf("%q, stdout %q", r.said("agent"), r.said("stdout"))
	}
	r.intent = []byte(`{"stdout"`)
	if got, err := r.exec.Execute(t.Context(), r.job(t.Context())); err == nil {
		t.Errorf("half an intent: %+v", got)
	}
	if v, err := r.exec.Resume(t.Context(), r.job(t.Context())); err == nil {
		t.Errorf("half an intent: %+v", v)
	}
}

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// TestScriptsThatCannotBeRead and those that are too large are refused, or left to another attempt.
func TestScriptsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("the line was cut")
	r := newRig(t, "")
	for size, fits := range map[int]bool{script.MaxScript: true, script.MaxScript + 1: false} {
		text := strings.Repeat("#", size)
		r.spec.GetScript().Sha256 = digest([]byte(text))
		blob := &closing{Reader: strings.NewReader(text)}
		r.cfg.Open = func(context.Context, string) (io.ReadCloser, error) { return blob, nil }
		r.exec = script.New(r.cfg)
		if settled := r.prepare(); (settled == nil) != fits || blob.closed != 1 {
			t.Errorf("of %d bytes: %+v, closed %d times", size, settled, blob.closed)
		}
	}
	for name, open := range map[string]func(context.Context, string) (io.ReadCloser, error){
		"not there": func(context.Context, string) (io.ReadCloser, error) { return nil, broken },
		"cut short": func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("#"), iotest.ErrReader(broken))), nil
		},
	} {
		r.cfg.Open = open
		if in, settled, err := script.New(r.cfg).Prepare(t.Context(), r.spec); !errors.Is(err, broken) {
			t.Errorf("%s: %v %+v %v", name, in, settled, err)
		}
	}
	if r.connections() != 0 {
		t.Error("the machine was asked")
	}
}
