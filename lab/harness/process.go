package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/process"
)

// Binaries are the programs of this tree.
type Binaries struct{ Controller, Agent, CLI string }

// Dir is where they are.
func (b Binaries) Dir() string { return filepath.Dir(b.Controller) }

var built struct {
	sync.Once
	Binaries
	dir string
	err error
}

// programsVariable names a directory with the programs of this tree. What runs many packages builds them once for all.
const programsVariable = "INGOT_TEST_PROGRAMS"

// Build returns the programs of programsVariable, or builds them, once in this process, without the race detector.
// RemoveBinaries removes those.
func Build(t testing.TB) Binaries {
	t.Helper()
	built.Do(func() {
		if dir := os.Getenv(programsVariable); dir != "" {
			built.Binaries = binariesIn(dir)
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "ingot-bin-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o",
			built.dir, // as the Makefile does it, which saves compiling twice
			"github.com/ingot-metal/ingot/cmd/ingot-controller", "github.com/ingot-metal/ingot/cmd/ingot-agent",
			"github.com/ingot-metal/ingot/cmd/ingot")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
		built.Binaries = binariesIn(built.dir)
	})
	if built.err != nil {
		t.Fatalf("build: %v", built.err)
	}
	return built.Binaries
}

func binariesIn(dir string) Binaries {
	return Binaries{filepath.Join(dir, "ingot-controller"), filepath.Join(dir, "ingot-agent"), filepath.Join(dir, "ingot")}
}

// RemoveBinaries removes what Build made. TestMain calls it.
func RemoveBinaries() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // temporary files
	}
}

// Process is a program under test.
type Process struct {
	*process.Process
	t      testing.TB
	output *testkit.Buffer
}

// startProcess runs a program that ends with the test at the latest. failpoints has the form of INGOT_FAILPOINTS.
func startProcess(t testing.TB, failpoints, path string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, output: &testkit.Buffer{}}
	var err error
	p.Process, err = process.Start(process.Config{Path: path, Args: args, Env: []string{"INGOT_FAILPOINTS=" + failpoints},
		Output: p.output})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s %s (INGOT_FAILPOINTS=%s):\n%s", filepath.Base(path), strings.Join(args, " "), failpoints,
				tail(p.output.String()))
		}
	})
	return p
}

func tail(s string) string {
	const limit = 6000
	return s[max(0, len(s)-limit):]
}

// Kill sends SIGKILL and waits.
func (p *Process) Kill() { p.check(p.Process.Kill()) }

// Terminate asks the process to end, and waits.
func (p *Process) Terminate() { p.check(p.Stop(30 * time.Second)) }

// Hangup sends SIGHUP.
func (p *Process) Hangup() { p.check(p.Signal(syscall.SIGHUP)) }

// Stand makes the process stand still until Continue.
func (p *Process) Stand() { p.check(p.Signal(syscall.SIGSTOP)) }

// Continue ends Stand.
func (p *Process) Continue() { p.check(p.Signal(syscall.SIGCONT)) }

func (p *Process) check(err error) {
	if err != nil {
		p.t.Error(err)
	}
}

// ControllerProcess is a controller that runs as a process of its own.
type ControllerProcess struct {
	*Client
	t   testing.TB
	dir string
	bin string
	at  place

	Front, Fleet, Enrolment *Relay
	addresses               controller.Addresses
	Process                 *Process
}

// NewControllerProcess prepares one on a database of its own; Start starts it.
func NewControllerProcess(t testing.TB) *ControllerProcess {
	t.Helper()
	return newControllerProcess(t, place{url: testkit.Database(t)})
}

// NewControllerProcessWith is NewControllerProcess with a REST listener and further lines of the configuration file,
// which is YAML.
func NewControllerProcessWith(t testing.TB, lines string) *ControllerProcess {
	t.Helper()
	return newControllerProcess(t, place{url: testkit.Database(t), rest: true, lines: lines})
}

// place has the resources that a controller shares, and its addresses. Empty ones are its own: relays, a directory of
// images, ports of 127.0.0.1 that are free. Lines are added to the configuration file. usual keeps the product's own
// pool, heartbeats and lease, which are shortened for tests otherwise.
type place struct {
	url, fleet, enrolment, images, host, lines string
	rest, usual                                bool
	// missed is how many heartbeats an agent may miss; 0: the product's own number.
	missed int
}

// times are the lines of the configuration file that shorten waits.
func (p place) times() string {
	if p.usual {
		return ""
	}
	missed := cmp.Or(p.missed, config.Default().Agents.MissedHeartbeats)
	return fmt.Sprintf("agents: {heartbeat_interval: 1s, missed_heartbeats: %d}\nlease: 4s", missed)
}

func (p place) pool() int {
	if p.usual {
		return config.Default().Database.PoolSize
	}
	return 10
}

// listen returns the addresses of a controller: the usual ports of a host that was asked for.
func (p place) listen() string {
	switch {
	case p.rest:
		return `{frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0", rest: "127.0.0.1:0"}`
	case p.host == "":
		return `{frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0"}`
	}
	return fmt.Sprintf(`{frontpage: "%[1]s:50051", fleet: "%[1]s:50052", enrolment: "%[1]s:50053", http: "%[1]s:8080"}`,
		p.host)
}

func newControllerProcess(t testing.TB, p place) *ControllerProcess {
	t.Helper()
	c := &ControllerProcess{
		t: t, dir: t.TempDir(), bin: Build(t).Controller, at: p,
		Front: NewRelay(t, "tcp", ""), Fleet: NewRelay(t, "tcp", ""), Enrolment: NewRelay(t, "tcp", ""),
	}
	secret, err := auth.AddToken(c.TokensFile(), "tester", access.ScopeAdmin)
	if err != nil {
		t.Fatalf("make token: %v", err)
	}
	c.Client = newClient(t, c.Front.Address(), filepath.Join(c.dir, "data", "ca.pem"), secret)
	c.configure()
	return c
}

// configure writes the configuration file.
func (c *ControllerProcess) configure() {
	c.t.Helper()
	p := c.at
	fleet, enrolment := cmp.Or(p.fleet, c.Fleet.Address()), cmp.Or(p.enrolment, c.Enrolment.Address())
	names := []string{"127.0.0.1", "localhost"}
	for _, address := range []string{fleet, p.host + ":0"} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" && !slices.Contains(names, host) {
			names = append(names, host)
		}
	}
	file := fmt.Sprintf(`
listen: %s
data_dir: %q
images_dir: %q
database: {url: %q, pool_size: %d}
tls: {names: ["%s"]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
log: {level: warn}
%s
%s
`, p.listen(), filepath.Join(c.dir, "data"), cmp.Or(p.images, c.images()), p.url, p.pool(), strings.Join(names, `", "`),
		fleet, enrolment, c.TokensFile(), p.times(), p.lines)
	if err := os.WriteFile(c.configFile(), []byte(file), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *ControllerProcess) images() string { return filepath.Join(c.dir, "data", "images") }

func (c *ControllerProcess) configFile() string { return filepath.Join(c.dir, "controller.yaml") }

// LetMiss sets how many heartbeats of a second an agent may miss, for the next start.
func (c *ControllerProcess) LetMiss(heartbeats int) {
	c.at.missed = heartbeats
	c.configure()
}

// ForgetPosition removes what the controller remembers of how far the database had got, as a lost disk does.
func (c *ControllerProcess) ForgetPosition() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, "data", "database-position")); err != nil {
		c.t.Fatal(err)
	}
}

// TokensFile holds the bearer tokens.
func (c *ControllerProcess) TokensFile() string { return filepath.Join(c.dir, "tokens") }

// Use has the next start run another program, such as one of an older version.
func (c *ControllerProcess) Use(program string) { c.bin = program }

// Migrate brings the schema up to date with a program, as an operator does ahead of an upgrade.
func (c *ControllerProcess) Migrate(program string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "migrate", "up", "--config", c.configFile()).CombinedOutput()
	if err != nil {
		c.t.Fatalf("migrate: %v: %s", err, out)
	}
}

// Launch starts the process without waiting for it to serve.
func (c *ControllerProcess) Launch(failpoints string) {
	c.t.Helper()
	if err := os.Remove(c.addressesFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	c.Process = startProcess(c.t, failpoints, c.bin, "run", "--config", c.configFile(), "--addresses-file",
		c.addressesFile())
}

func (c *ControllerProcess) addressesFile() string { return filepath.Join(c.dir, "addresses") }

// Start starts the process, waits until it is ready, and returns that time. One with failpoints may die before that, of
// work that its predecessor left: then Start only waits for its death, which is seen at Process.Gone.
func (c *ControllerProcess) Start(failpoints string) time.Time {
	c.t.Helper()
	c.Launch(failpoints)
	var a controller.Addresses
	c.until("the controller does not say where it listens", func() bool {
		var err error
		a, err = c.listening()
		return err == nil
	})
	c.until("the controller is not ready", func() bool {
		ready, _ := readiness("http://" + a.HTTP)
		return ready
	})
	up := time.Now()
	if c.dead() {
		if failpoints == "" {
			c.t.Fatalf("the controller ended before it was ready: %s", c.output())
		}
		return up
	}
	c.addresses = a
	c.Front.Retarget("tcp", a.Frontpage)
	c.Fleet.Retarget("tcp", a.Fleet)
	c.Enrolment.Retarget("tcp", a.Enrolment)
	return up
}

func (c *ControllerProcess) listening() (a controller.Addresses, err error) {
	b, err := os.ReadFile(c.addressesFile())
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(b), &a)
	}
	return a, err
}

// Readiness asks /readyz of a process that may not be ready, or not listen yet.
func (c *ControllerProcess) Readiness() (ready bool, answer string) {
	a, err := c.listening()
	if err != nil {
		return false, err.Error()
	}
	return readiness("http://" + a.HTTP)
}

// until waits for something that the process does, or for its end.
func (c *ControllerProcess) until(otherwise string, done func() bool) {
	c.t.Helper()
	testkit.Eventually(c.t, time.Minute, func() bool { return done() || c.dead() }, "%s: %s", otherwise, lazy(c.output))
}

func (c *ControllerProcess) dead() bool {
	select {
	case <-c.Process.Gone():
		return true
	default:
		return false
	}
}

// Addresses are those of the listeners themselves, without relays between.
func (c *ControllerProcess) Addresses() controller.Addresses { return c.addresses }

// CAFile holds the root certificate.
func (c *ControllerProcess) CAFile() string { return c.caFile }

func (c *ControllerProcess) output() string { return tail(c.Process.output.String()) }

// AgentProcess runs the agent of a machine, made with Stopped, as a process of its own.
func (m *Machine) AgentProcess(failpoints string) *Process {
	m.t.Helper()
	token := filepath.Join(m.StateDir, "token")
	if err := os.WriteFile(token, []byte(m.Config.Bundle), 0o600); err != nil {
		m.t.Fatal(err)
	}
	simID := m.o.SimID
	if m.o.Site {
		// A site agent does not go down with the machine that it reboots.
		simID = "site-machine"
	}
	args := []string{"run", "--host", "sim", "--state-dir", m.StateDir, "--sim-dir", m.World.Dir(), "--sim-id", simID,
		"--token-file", token, "--sim-delay", m.o.Delay.String(), "--sim-repave-time", "50ms", "--sim-script", m.o.Script,
		"--log-level", "warn"}
	if m.o.Site {
		args = append(args, "--role", "site")
	}
	if m.o.Lines != "" {
		file := filepath.Join(m.StateDir, "agent.yaml")
		if err := os.WriteFile(file, []byte(m.o.Lines), 0o600); err != nil {
			m.t.Fatal(err)
		}
		args = append(args, "--config", file)
	}
	return startProcess(m.t, failpoints, Build(m.t).Agent, args...)
}

// RunAgentProcess runs the agent and starts it again, without failpoints, once it has been killed by one. It ends with
// the test. killed is closed when it has been killed.
func (m *Machine) RunAgentProcess(failpoints string) (killed <-chan struct{}) {
	m.t.Helper()
	first := m.AgentProcess(failpoints)
	was := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	again := make(chan struct{})
	task.Background("restart agent", func() {
		defer close(again)
		select {
		case <-ctx.Done():
			return
		case <-first.Gone():
		}
		if first.Killed() && ctx.Err() == nil {
			m.AgentProcess("")
			close(was)
		}
	})
	m.t.Cleanup(func() {
		cancel()
		<-again
	})
	return was
}
