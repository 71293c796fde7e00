package script_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const patience = 30 * time.Second

// rig is a machine with an SSH server, and what an agent has stored of one command.
type rig struct {
	t      *testing.T
	server *sshtest.Server
	cfg    script.Config
	exec   *script.Executor
	spec   *fleetv1.CommandSpec
	intent json.RawMessage
	// file is named by the script's first argument.
	file    string
	started time.Time

	// onLog runs before a line of the agent's is noted, onOutput before a piece of the script's.
	onLog, onOutput func(what string)
	// writes counts those of the intent; each fails with unwritten.
	writes    int
	unwritten error

	mu     sync.Mutex
	log    map[string]string
	pieces map[string][]int
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{t: t, server: sshtest.Start(t), file: filepath.Join(t.TempDir(), "file"), log: map[string]string{},
		pieces: map[string][]int{}, started: time.Now()}
	r.cfg = script.Config{
		Open: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		},
		Credentials: func(context.Context, string, string) (ssh.Credentials, error) {
			return ssh.Credentials{Username: r.server.Username, PrivateKey: r.server.PrivateKey}, nil
		},
		Clock: clock.Real(), Poll: 100 * time.Millisecond, Base: r.server.Base,
	}
	r.exec = script.New(r.cfg)
	r.spec = &fleetv1.CommandSpec{
		CommandId: "cmd-1", OperationId: "op-1", TargetId: "m-1", TimeoutMs: 600_000,
		Action: &fleetv1.CommandSpec_Script{Script: &fleetv1.ScriptAction{
			ScriptRef: "fix", Sha256: digest([]byte(text)), Interpreter: "/bin/sh", Args: []string{r.file},
			Endpoint: r.server.Endpoint,
			HostKeys: []string{r.server.Fingerprint}, CredentialsRef: "rack-1",
		}},
	}
	return r
}

// wait is a script that counts its runs, prints two lines, and ends when the gate is open.
const wait = `echo ran >>"$1"; echo before; while [ ! -e "$1.gate" ]; do sleep 0.1; done; echo after; exit ${2:-0}`

func (r *rig) openGate() {
	r.t.Helper()
	if err := os.WriteFile(r.file+".gate", nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ran() int {
	b, err := os.ReadFile(r.file)
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("ran\n"))
}

func (r *rig) add(stream, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log[stream] += text
	r.pieces[stream] = append(r.pieces[stream], len(text))
}

func (r *rig) said(stream string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log[stream]
}

func (r *rig) job(hard context.Context) executor.Job {
	return executor.Job{
		Spec: r.spec, Intent: r.intent, Hard: hard, StartedAt: r.started, Progress: func(int, string) {},
		Logf: func(format string, args ...any) {
			text := fmt.Sprintf(format, args...) + "\n"
			if r.onLog != nil {
				r.onLog(text)
			}
			r.add("agent", text)
		},
		Output: func(stream string, data []byte) {
			if r.onOutput != nil {
				r.onOutput(stream)
			}
			r.add(stream, string(data))
		},
		UpdateIntent: func(_ context.Context, intent any) (err error) {
			if r.writes++; r.unwritten != nil {
				return r.unwritten
			}
			r.intent, err = json.Marshal(intent)
			return err
		},
	}
}

func (r *rig) prepare() *executor.Result {
	r.t.Helper()
	intent, settled, err := r.exec.Prepare(r.t.Context(), r.spec)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.intent, err = json.Marshal(intent); err != nil {
		r.t.Fatal(err)
	}
	return settled
}

// do is a whole life of a command.
func (r *rig) do(ctx, hard context.Context) (executor.Result, error) {
	r.t.Helper()
	if settled := r.prepare(); settled != nil {
		return *settled, nil
	}
	return r.exec.Execute(ctx, r.job(hard))
}

func (r *rig) must(ctx context.Context) executor.Result {
	r.t.Helper()
	result, err := r.do(ctx, r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// resume is the next life of the agent.
func (r *rig) resume() executor.Verdict {
	r.t.Helper()
	v, err := r.exec.Resume(r.t.Context(), r.job(r.t.Context()))
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

func (r *rig) wants(got executor.Result, outcome fleetv1.CommandResult_Outcome, reason baremetalv1.Reason) {
	r.t.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		r.t.Errorf("got %s %s %q %v, want %s %s", got.Outcome, got.Reason, got.Message, got.Evidence, outcome, reason)
	}
}

func TestAScriptRunsAndIsProved(t *testing.T) {
	t.Parallel()
	r := newRig(t,
		`echo "out $2"; echo an error on stderr >&2; printf 'no end' >&2; echo password=hunter2; printf 'no end'; `)
	r.spec.GetScript().Args = append(r.spec.GetScript().Args, "$(id) '\n\"")
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_SUCCEEDED, 0)
	for key, want := range map[string]string{
		"exit_code": "0", "script_sha256": r.spec.GetScript().GetSha256(), "ssh_host_key": r.server.Fingerprint,
		"stderr_bytes": "25",
	} {
		if got.Evidence[key] != want {
			t.Errorf("evidence %s is %q, want %q", key, got.Evidence[key], want)
		}
	}
	if out := r.said("stdout"); out != "out $(id) '\n\"\npassword=[REDACTED]\nno end\n" &&
		!strings.Contains(out, "out $(id) '\n\"\npassword=") || strings.Contains(out, "hunter2") {
		t.Errorf("stdout: %q", out)
	}
	if r.said("stderr") != "an error on stderr\nno end\n" || strings.Contains(r.said("agent"), "not kept") {
		t.Errorf("stderr: %q", r.said("stderr"))
	}
	left, err := filepath.Glob(filepath.Join(r.server.Base, "cmd-1", "*"))
	if err != nil || strings.Contains(strings.Join(left, " "), "script") ||
		strings.Contains(strings.Join(left, " "), "args") {
		t.Errorf("left on the machine: %v %v", left, err)
	}
}

func TestWhatGoesWrongHasAName(t *testing.T) {
	t.Parallel()
	_, other := sshtest.Key(t)
	stranger, _ := sshtest.Key(t)
	for name, c := range map[string]struct {
		change  func(*rig)
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
	}{
		"exit code": {func(*rig) {}, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED},
		"other bytes": {func(r *rig) { r.spec.GetScript().Sha256 = digest([]byte("other")) },
			fleetv1.CommandResult_REFUSED, baremetalv1.Reason_SCRIPT_DIGEST_MISMATCH},
		"no host key": {func(r *rig) { r.spec.GetScript().HostKeys = nil },
			fleetv1.CommandResult_REFUSED, baremetalv1.Reason_SSH_HOST_KEY_UNKNOWN},
		"another host key": {func(r *rig) { r.spec.GetScript().HostKeys = []string{fingerprint(other)} },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_SSH_HOST_KEY_MISMATCH},
		"another key of ours": {func(r *rig) { r.server.PrivateKey = stranger },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_SSH_AUTH_FAILED},
		"nobody there": {func(r *rig) { r.spec.GetScript().Endpoint = "127.0.0.1:1" },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_SSH_UNREACHABLE},
		"no endpoint": {func(r *rig) { r.spec.GetScript().Endpoint = "" },
			fleetv1.CommandResult_REFUSED, baremetalv1.Reason_SSH_NOT_CONFIGURED},
		"a relative interpreter": {func(r *rig) { r.spec.GetScript().Interpreter = "sh" },
			fleetv1.CommandResult_REFUSED, baremetalv1.Reason_INVALID_FIELD},
		"an interpreter that is not there": {func(r *rig) { r.spec.GetScript().Interpreter = "/no/such" },
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, `echo ran >>"$1"; exit 3`)
			c.change(r)
			got := r.must(t.Context())
			r.wants(got, c.outcome, c.reason)
			ran, code := 0, ""
			if name == "exit code" {
				ran, code = 1, "3"
			}
			if r.ran() != ran || got.Evidence["exit_code"] != code {
				t.Errorf("it ran %d times, exit code %q", r.ran(), got.Evidence["exit_code"])
			}
		})
	}
}

func TestTheTimeIsUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, `trap '' TERM; echo $$ >"$1"; sleep 300 & sleep 300; sleep 300`)
	r.spec.TimeoutMs = 4000
	r.started = time.Now()
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT)
	r.nothingRuns()
}

// nothingRuns reads the process group of the script back.
func (r *rig) nothingRuns() {
	r.t.Helper()
	b, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	group := strings.TrimSpace(string(b))
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(all) == 0 {
		r.t.Fatalf("no processes: %v", err)
	}
	for _, file := range all {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[2] == group && f[0] != "Z" && f[0] != "X" {
			r.t.Errorf("still there: %s", stat)
		}
	}
}

func TestACancelKills(t *testing.T) {
	t.Parallel()
	r := newRig(t, `echo $$ >"$1"; echo begun; printf 'half a'; sleep 300`)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan executor.Result, 1)
	go func() { done <- r.must(ctx) }()
	testkit.Eventually(t, patience, func() bool { return r.said("stdout") == "begun\n" }, "it does not begin")
	cancel(executor.ErrCanceled)
	r.wants(<-done, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
	r.nothingRuns()
	if out := r.said("stdout"); out != "begun\nhalf a\n" || r.left("script") {
		t.Errorf("stdout %q; the script is left on the machine: %v", out, r.left("script"))
	}
}

func TestACancelBeforeTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	ctx, cancel := context.WithCancelCause(t.Context())
	fp := failpoint.NewScope()
	fp.Set("ssh.before-start", failpoint.Call(func(context.Context) error {
		cancel(executor.ErrCanceled)
		return nil
	}))
	r.wants(r.must(failpoint.With(ctx, fp)), fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
	if r.ran() != 0 {
		t.Error("it ran")
	}
}

// The agent dies at each point; what ran is counted by the machine.
func TestAnAgentThatDies(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"ssh.before-start", "agent.after-effect"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, wait)
			fp := failpoint.NewScope()
			fp.Set(point, failpoint.Error())
			_, err := r.do(failpoint.With(t.Context(), fp), t.Context())
			if !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("it lives: %v", err)
			}
			r.openGate()
			v := r.resume()
			if v.GoOn != (point == "ssh.before-start") {
				t.Fatalf("verdict %+v", v)
			}
			if v.GoOn {
				result, err := r.exec.Execute(t.Context(), r.job(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				v = executor.Settle(result)
			}
			r.wants(*v.Settled, fleetv1.CommandResult_SUCCEEDED, 0)
			if r.ran() != 1 {
				t.Errorf("it ran %d times", r.ran())
			}
			if out := r.said("stdout"); out != "before\nafter\n" {
				t.Errorf("stdout: %q", out)
			}
			if again := r.resume(); again.Settled == nil || again.Settled.Outcome != fleetv1.CommandResult_SUCCEEDED {
				t.Errorf("once more: %+v", again)
			}
		})
	}
}

func TestAnAgentThatStopsWhileAScriptRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	r.spec.GetScript().Args = append(r.spec.GetScript().Args, "5")
	hard, stop := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.do(hard, hard)
		failed <- err
	}()
	testkit.Eventually(t, patience, func() bool { return r.said("stdout") == "before\n" }, "it does not begin")
	stop(executor.ErrShutdown)
	if err := <-failed; !errors.Is(err, executor.ErrInterrupted) {
		t.Fatalf("the agent stops: %v", err)
	}
	r.openGate()
	v := r.resume()
	if v.Settled == nil {
		t.Fatalf("verdict %+v", v)
	}
	r.wants(*v.Settled, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED)
	if v.Settled.Evidence["exit_code"] != "5" || r.ran() != 1 || r.said("stdout") != "before\nafter\n" {
		t.Errorf("%+v; it ran %d times; stdout %q", v.Settled, r.ran(), r.said("stdout"))
	}
}

func TestALineThatIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	p := sshtest.NewProxy(t, r.server.Endpoint)
	r.spec.GetScript().Endpoint = p.Endpoint
	done := make(chan executor.Result, 1)
	go func() { done <- r.must(t.Context()) }()
	testkit.Eventually(t, patience, func() bool { return r.said("stdout") == "before\n" }, "it does not begin")
	p.Cut(true)
	r.openGate()
	p.Open()
	r.wants(<-done, fleetv1.CommandResult_SUCCEEDED, 0)
	if r.ran() != 1 || r.said("stdout") != "before\nafter\n" {
		t.Errorf("it ran %d times; stdout %q", r.ran(), r.said("stdout"))
	}
}

func TestAMachineThatStaysAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, wait)
	r.spec.TimeoutMs = 8000
	r.started = time.Now()
	p := sshtest.NewProxy(t, r.server.Endpoint)
	r.spec.GetScript().Endpoint = p.Endpoint
	done := make(chan executor.Result, 1)
	go func() { done <- r.must(t.Context()) }()
	testkit.Eventually(t, patience, func() bool { return r.ran() == 1 }, "it does not begin")
	p.Cut(true)
	got := <-done
	r.wants(got, fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN)
	if !strings.Contains(got.Message, "does not answer") {
		t.Errorf("%q", got.Message)
	}
	r.openGate()
	p.Open()
	testkit.Eventually(t, patience, func() bool { v := r.resume(); return v.Settled != nil }, "the script does not end")
}

func TestMuchOutputIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, `head -c 10485760 /dev/zero | tr '\0' '\n' | sed 's/^/0123456789/'; head -c 1048700 /dev/zero >&2`)
	got := r.must(t.Context())
	r.wants(got, fleetv1.CommandResult_SUCCEEDED, 0)
	if n := len(r.said("stdout")); n < ssh.Kept-20 || n > ssh.Kept+20 {
		t.Errorf("the log has %d bytes", n)
	}
	if got.Evidence["stdout_bytes"] != fmt.Sprint(11*10<<20) || got.Evidence["stderr_bytes"] != "1048700" ||
		!strings.Contains(r.said("agent"), "more bytes of stdout") {
		t.Errorf("%v; %s", got.Evidence, r.said("agent"))
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, script.Declaration, func(t *testing.T) executortest.World {
		r := newRig(t, `echo ran >>"$1"`)
		return executortest.World{
			Spec: r.spec, Executor: func() executor.Executor { return r.exec }, Effects: r.ran,
		}
	})
}
