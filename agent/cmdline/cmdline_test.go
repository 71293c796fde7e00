package cmdline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/cmdline"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bmc"
)

// childRun makes the test binary the agent, so that a test can kill it for real.
const childRun = "INGOT_TEST_AGENT_CHILD"

func TestMain(m *testing.M) {
	bmc.MainIfControl()
	if os.Getenv(childRun) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	os.Exit(cmdline.Main(ctx, os.Args[1:], "v-test"))
}

// process is one running agent.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

// output is what the process wrote; it may be read while that still writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func launch(t *testing.T, failpoints string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), out: &output{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childRun+"=1", failpoint.EnvVar+"="+failpoints)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	task.Background("wait for the agent process", func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState has the exit code
	})
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("the agent wrote:\n%s", p.out)
		}
	})
	return p
}

// run runs a verb to its end.
func run(t *testing.T, args ...string) (output string, exit int) {
	t.Helper()
	p := launch(t, "", args...)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatalf("%v does not end", args)
	}
	return p.out.String(), p.cmd.ProcessState.ExitCode()
}

func (p *process) killed() bool {
	select {
	case <-p.done:
	default:
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func tokenFile(t *testing.T, c *agenttest.Controller) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(c.Bundle()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func netboot() *fleetv1.CommandSpec {
	return &fleetv1.CommandSpec{TimeoutMs: 10000,
		Action: &fleetv1.CommandSpec_Netboot{Netboot: &fleetv1.NetbootAction{Mode: "PXE"}}}
}

func effects(t *testing.T, world, id string) int {
	t.Helper()
	records, err := sim.ReadJournal(world)
	if err != nil {
		t.Fatal(err)
	}
	return sim.CountByCommand(records)[id]
}

// TestKillNineAtEveryFailpoint kills a real process at each point that a netboot passes, and starts it again.
func TestKillNineAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	for _, name := range failpoint.Names() {
		if !strings.HasPrefix(name, "agent.") || strings.Contains(name, "rotate") || strings.Contains(name, "reconfig") ||
			strings.Contains(name, "reenroll") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := agenttest.New(t, agenttest.Hooks{})
			world := t.TempDir()
			args := []string{"run", "--host", "sim", "--sim-dir", world, "--state-dir", t.TempDir(), "--token-file",
				tokenFile(t, c)}
			id := c.Order(netboot())
			first := launch(t, name+"=kill@1", args...)
			c.Wait("the kill", first.killed)
			launch(t, "", args...)
			got := c.WaitResult(id)
			if got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED || effects(t, world, id) != 1 || c.Certificates() != 1 {
				t.Fatalf("%v, %d effects, %d certificates", got, effects(t, world, id), c.Certificates())
			}
		})
	}
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	c := agenttest.New(t, agenttest.Hooks{})
	dir := filepath.Join(t.TempDir(), "state")
	base := []string{"--state-dir", dir}
	verb := func(name string, more ...string) []string { return append(append([]string{name}, base...), more...) }

	if out, exit := run(t, verb("doctor", "--host", "sim")...); exit != 3 || !strings.Contains(out, "ingot-agent enroll") {
		t.Fatalf("doctor before enrolment: %d\n%s", exit, out)
	}
	if out, exit := run(t, verb("run", "--host", "sim")...); exit != 1 || !strings.Contains(out, "no bootstrap token") {
		t.Fatalf("run without a token: %d\n%s", exit, out)
	}
	rubbish := filepath.Join(t.TempDir(), "rubbish")
	if err := os.WriteFile(rubbish, []byte("ingot1.rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, exit := run(t, verb("enroll", "--host", "sim", "--token-file", rubbish)...); exit != 2 {
		t.Fatalf("enroll with rubbish: %d\n%s", exit, out)
	}
	if out, exit := run(t, verb("enroll", "--host", "sim", "--token-file", tokenFile(t, c))...); exit != 0 ||
		!strings.Contains(out, c.AgentID) {
		t.Fatalf("enroll: %d\n%s", exit, out)
	}
	if out, exit := run(t, verb("enroll", "--host", "sim")...); exit != 0 || !strings.Contains(out, "already enrolled") {
		t.Fatalf("enroll again: %d\n%s", exit, out)
	}
	agent := launch(t, "", verb("run", "--host", "sim")...)
	c.WaitSessions(1)
	if out, exit := run(t, verb("doctor", "--host", "sim")...); exit != 0 || !strings.Contains(out, "ok    mtls") {
		t.Fatalf("doctor: %d\n%s", exit, out)
	}
	if out, exit := run(t, verb("lock", "--reason", "disk swap")...); exit != 0 {
		t.Fatalf("lock: %d\n%s", exit, out)
	}
	c.Wait("the report of the lock", func() bool {
		for _, e := range c.Events() {
			if e.GetReport().GetKind() == "locked" && e.GetReport().GetMessage() == "disk swap" {
				return true
			}
		}
		return false
	})
	if got := c.WaitResult(c.Order(netboot())); got.GetReason() != "AGENT_LOCKED" ||
		!strings.Contains(got.GetMessage(), "disk swap") {
		t.Fatalf("locked agent: %v", got)
	}
	checkStatus(t, c, verb("status", "--output", "json"), true, "disk swap")
	if out, exit := run(t, verb("unlock")...); exit != 0 {
		t.Fatalf("unlock: %d\n%s", exit, out)
	}
	if got := c.WaitResult(c.Order(netboot())); got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED {
		t.Fatalf("unlocked agent: %v", got)
	}
	if out, exit := run(t, verb("run", "--host", "sim")...); exit != 6 {
		t.Fatalf("a second process: %d\n%s", exit, out)
	}
	if err := agent.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-agent.done
	if code := agent.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("SIGTERM ends with %d", code)
	}
	checkStatus(t, c, verb("status", "--output", "json"), false, "")
}

func checkStatus(t *testing.T, c *agenttest.Controller, args []string, running bool, locked string) {
	t.Helper()
	out, exit := run(t, args...)
	var got struct {
		AgentID      string `json:"agent_id"`
		Running      bool   `json:"running"`
		LockedReason string `json:"locked_reason"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || exit != 0 {
		t.Fatalf("status: %d, %v\n%s", exit, err, out)
	}
	if got.AgentID != c.AgentID || got.Running != running || got.LockedReason != locked {
		t.Fatalf("status %+v", got)
	}
}

func TestSupersededExitsWithItsOwnCode(t *testing.T) {
	t.Parallel()
	c := agenttest.New(t, agenttest.Hooks{})
	p := launch(t, "", "run", "--host", "sim", "--state-dir", t.TempDir(), "--token-file", tokenFile(t, c))
	s := c.WaitSessions(1)
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
		Superseded: &fleetv1.Superseded{ByEpoch: s.Welcome.GetEpoch() + 1},
	}})
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 4 {
		t.Fatalf("exit code %d", code)
	}
}

func TestSystemdIsTold(t *testing.T) {
	c := agenttest.New(t, agenttest.Hooks{})
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "100000")
	p := launch(t, "", "run", "--host", "sim", "--state-dir", t.TempDir(), "--token-file", tokenFile(t, c))
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	awaiting := map[string]bool{"READY=1": true, "WATCHDOG=1": true, "STATUS=connected to the controller": true}
	buf := make([]byte, 1024)
	for len(awaiting) > 0 {
		n, err := l.Read(buf)
		if err != nil {
			t.Fatalf("%v; still awaiting %v", err, awaiting)
		}
		delete(awaiting, string(buf[:n]))
	}
	c.Session().Break()
	for said := ""; !strings.HasPrefix(said, "STATUS=not connected"); {
		n, err := l.Read(buf)
		if err != nil {
			t.Fatalf("%v; not told that the session has ended", err)
		}
		said = string(buf[:n])
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !strings.HasPrefix(string(buf), "STOPPING=1") {
		if _, err := l.Read(buf); err != nil {
			t.Fatalf("%v; not told that it stops", err)
		}
	}
}

func TestSimulateRunsManyAndSaysSo(t *testing.T) {
	t.Parallel()
	a, b := agenttest.New(t, agenttest.Hooks{}), agenttest.New(t, agenttest.Hooks{})
	file := filepath.Join(t.TempDir(), "bundles")
	if err := os.WriteFile(file, []byte(a.Bundle()+"\n\n"+b.Bundle()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := launch(t, "", "simulate", "--count", "2", "--dir", dir, "--bundles", file, "--sim-delay", "10ms")
	for _, c := range []*agenttest.Controller{a, b} {
		if h := c.WaitSessions(1).Hello; !h.GetSimulated() {
			t.Fatalf("hello %v", h)
		}
		id := c.Order(&fleetv1.CommandSpec{TimeoutMs: 10000,
			Action: &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{}}})
		if got := c.WaitResult(id); got.GetOutcome() != fleetv1.CommandResult_SUCCEEDED || !got.GetSimulated() {
			t.Fatalf("got %v", got)
		}
		if n := effects(t, filepath.Join(dir, "world"), id); n != 1 {
			t.Fatalf("%d effects", n)
		}
	}
	if !strings.Contains(p.out.String(), "simulated=true") {
		t.Fatalf("it does not say so:\n%s", p.out)
	}
}

func TestWrongConfigurationIsExitTwoWithAllProblems(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("hots: real\nrole: king\nhost: virtual\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"config", "check", file}, {"run", "--config", file}} {
		out, exit := run(t, args...)
		if exit != 2 || !strings.Contains(out, "hots") || !strings.Contains(out, "king") ||
			!strings.Contains(out, "virtual") {
			t.Fatalf("%v: %d\n%s", args, exit, out)
		}
	}
	if out, exit := run(t, "run", "--bogus"); exit != 2 || !strings.Contains(out, "--bogus") {
		t.Fatalf("unknown flag: %d\n%s", exit, out)
	}
	if out, exit := run(t, "version"); exit != 0 || !strings.Contains(out, "v-test") {
		t.Fatalf("version: %d\n%s", exit, out)
	}
}
