package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// agentProgram is the agent of one simulated machine.
type agentProgram struct {
	program.Program
	c       *Trial
	index   int
	machine string
	dir     string // of its memory
	mounted bool
	copied  map[string][]byte
	backup  saved
	clone   *clone
	// elsewhere is set when another machine has used this identity: nothing goes on here before an operator has looked at
	// it.
	elsewhere bool
}

// memorySize is the room that an agent has, where it has a file system of its own.
const memorySize = "24m"

func (c *Trial) newAgent(ctx context.Context, i int) (*agentProgram, error) {
	a := &agentProgram{c: c, index: i, machine: fmt.Sprintf("m-%d", i+1), dir: c.Path(fmt.Sprintf("memory-%d", i+1))}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, err
	}
	a.mounted = program.Mount(a.dir, "size="+memorySize+",mode=0700")
	log, err := program.OpenLog(c.Path(fmt.Sprintf("agent-%d.log", i+1)))
	if err != nil {
		return a, err
	}
	if a.Clock, err = c.newClock(fmt.Sprintf("agent-%d", i+1)); err != nil {
		return a, err
	}
	a.Program = program.Program{
		Name: fmt.Sprintf("agent-%d", i+1), Log: log, Ended: c.died, Env: c.environment(), Clock: a.Clock,
		Command: func() (string, []string) {
			return filepath.Join(c.bin, "ingot-agent"), []string{"run", "--config", a.file("agent.yaml")}
		},
	}
	if err := c.register(ctx, &baremetalv1.Machine{MachineId: a.machine, Spec: a.spec()}); err != nil {
		return a, err
	}
	t, err := baremetalv1.NewAdminServiceClient(c.controllers[0].conn).IssueBootstrapToken(ctx, a.tokenRequest())
	if err != nil {
		return a, fmt.Errorf("issue a token: %w", err)
	}
	if err := errors.Join(os.WriteFile(a.file("token"), []byte(t.GetBundle()), 0o600), a.configure()); err != nil {
		return a, err
	}
	return a, a.Start("")
}

func (a *agentProgram) file(name string) string {
	return a.c.Path(fmt.Sprintf("agent-%d.%s", a.index+1, name))
}

// rebootTimes differ, so that faults meet reboots that are over at once and such that take their time.
var rebootTimes = []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 40 * time.Millisecond}

func (a *agentProgram) configure() error {
	return os.WriteFile(a.file("agent.yaml"), a.configuration(a.dir, a.machine), 0o600)
}

// configuration is that of a process with this state directory, on this simulated machine.
func (a *agentProgram) configuration(dir, machine string) []byte {
	var addresses []string
	for _, p := range a.c.controllers {
		addresses = append(addresses, fmt.Sprintf("%q", p.fleet[a.index].Address()))
	}
	role := "host"
	if a.c.o.Wide {
		role = "site"
	}
	return fmt.Appendf(nil, `
state_dir: %q
host: sim
role: %s
token_file: %q
addresses: [%s]
log: {level: info, format: json}
sim: {dir: %q, machine_id: %q, delay: %v, repave_time: 120ms, recorder: %q}
`, dir, role, a.file("token"), strings.Join(addresses, ", "), a.c.Path("world"), machine,
		rebootTimes[a.index%len(rebootTimes)], a.c.Path("recorder"))
}

// spec is that of the agent's own machine. The agent of a site acts on it as on any other.
func (a *agentProgram) spec() *baremetalv1.MachineSpec {
	if a.c.o.Wide {
		return wideSpec()
	}
	return &baremetalv1.MachineSpec{}
}

func (a *agentProgram) tokenRequest() *baremetalv1.IssueBootstrapTokenRequest {
	if a.c.o.Wide {
		return &baremetalv1.IssueBootstrapTokenRequest{Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: wideSite}
	}
	return &baremetalv1.IssueBootstrapTokenRequest{MachineId: a.machine}
}

// memory are the files of the agent's database.
func (a *agentProgram) memory() ([]string, error) {
	return filepath.Glob(filepath.Join(a.dir, state.FileName+"*"))
}

// forget wipes the memory and leaves the identity.
func (a *agentProgram) forget() error {
	files, err := a.memory()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("wipe an agent's memory: %w", err)
		}
	}
	return nil
}

// copyMemory keeps the memory of an agent that does not run.
func (a *agentProgram) copyMemory() error {
	files, err := a.memory()
	if err != nil {
		return err
	}
	a.copied = map[string][]byte{}
	for _, f := range files {
		if a.copied[f], err = os.ReadFile(f); err != nil {
			return fmt.Errorf("copy an agent's memory: %w", err)
		}
	}
	return nil
}

// rollBack puts the copy in the place of the memory.
func (a *agentProgram) rollBack() error {
	if err := a.forget(); err != nil {
		return err
	}
	for f, b := range a.copied {
		if err := os.WriteFile(f, b, 0o600); err != nil {
			return fmt.Errorf("roll an agent's memory back: %w", err)
		}
	}
	return nil
}

func (a *agentProgram) ballast() string { return filepath.Join(a.dir, "ballast") }

// roomLeft is the least room that an agent begins with where its disk is about to be full: enough for a few writes.
const roomLeft = 96 << 10

// stopLimit is how long an agent may take to end by itself.
const stopLimit = 5 * time.Second

// fill leaves the agent no room, and reports whether the disk was seen full. In half of the strikes the agent has just
// begun, with a log of its database that must grow: an older log has room of its own. The disk is full then after some
// more writes.
func (a *agentProgram) fill(ctx context.Context, s plan.Strike) (full bool, err error) {
	if !s.Stays {
		err := program.Fill(a.ballast())
		return err == nil, err
	}
	room := int64(roomLeft + s.Target*(4<<10))
	a.Busy.Lock()
	err = a.Stop(stopLimit)
	if err == nil {
		err = errors.Join(program.FillBut(a.ballast(), room), a.Start(""))
	}
	a.Busy.Unlock()
	if err != nil {
		return false, err
	}
	return program.BecomesFull(ctx, a.dir)
}

func (a *agentProgram) close() error {
	err := a.Program.Close()
	if a.clone != nil {
		err = errors.Join(err, a.clone.process.Kill())
	}
	if a.mounted {
		err = errors.Join(err, unix.Unmount(a.dir, unix.MNT_DETACH))
	}
	return err
}
