//go:build console

package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/process"
	"github.com/ingot-metal/ingot/lab/signon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.RemoveBinaries()
	signon.RemoveProgram()
	os.Exit(code)
}

// machines have agents, and so have many more of no peculiarity; others are known and have none.
const (
	machines = 24
	many     = 1000
	spare    = 40
)

// rig is a controller, its machines, and the browser's way to it.
type rig struct {
	t      *testing.T
	c      *harness.ControllerProcess
	rest   *harness.Relay
	agents *process.Process
	dir    string
}

// TestConsole has a browser open every page, do work for real, and see its controller die and come back.
func TestConsole(t *testing.T) {
	p := signon.New(t)
	r := &rig{t: t, rest: harness.NewRelay(t, "tcp", ""), dir: t.TempDir(),
		c: harness.NewControllerProcessWith(t, p.Config()+"webhooks: {allow_loopback: true}\n")}
	p.Person("ada", "second-eyes")
	p.Start(r.rest.Address(), time.Hour)
	r.start()
	r.fill()
	r.browse("console.mjs", fmt.Sprintf("CONSOLE_MACHINES=%d", machines+many+spare))
}

func (r *rig) start() {
	r.c.Start("")
	r.rest.Retarget("tcp", r.c.Addresses().REST)
}

// fill makes a small fleet: most machines in service, some not, one whose reboot never ends, one that is flagged.
func (r *rig) fill() {
	r.t.Helper()
	var bundles strings.Builder
	for i := 1; i <= machines; i++ {
		id := name(i)
		m := &pb.Machine{MachineId: id, Labels: map[string]string{"env": []string{"prod", "test"}[i%2]},
			Spec: &pb.MachineSpec{Rack: fmt.Sprintf("r%d", 1+(i-1)/8), Location: "hall 2"}}
		if i == 2 { // its rack is a label alone
			m.Labels["rack"], m.Spec.Rack = m.GetSpec().GetRack(), ""
		}
		r.c.Register(m)
		fmt.Fprintln(&bundles, r.c.IssueToken(&pb.IssueBootstrapTokenRequest{MachineId: id}))
	}
	for i := 1; i <= spare; i++ {
		r.c.Register(&pb.Machine{MachineId: fmt.Sprintf("spare-%d", i),
			Spec: &pb.MachineSpec{Rack: fmt.Sprintf("r%d", 4+i/21)}})
	}
	for _, bundle := range r.register() {
		fmt.Fprintln(&bundles, bundle)
	}
	file := filepath.Join(r.dir, "bundles")
	if err := os.WriteFile(file, []byte(bundles.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	agents, err := process.Start(process.Config{Path: harness.Build(r.t).Agent, Output: io.Discard, Args: []string{
		"simulate", "--count", fmt.Sprint(machines + many), "--bundles", file, "--dir", filepath.Join(r.dir, "machines"),
		"--sim-delay", "3s", "--sim-script", "sim-0007/reboot:never", "--log-level", "error"}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.agents = agents
	r.t.Cleanup(func() { _ = agents.Kill() }) // it ends with the test's process in any case
	testkit.Eventually(r.t, 5*time.Minute, func() bool {
		list := harness.Must(r.t, r.c.Admin().ListAgents, &pb.ListAgentsRequest{Filter: "connected=true", PageSize: 1})
		return list.GetTotalSize() == machines+many
	}, "the machines do not connect")
	r.serve()
	for i := 1; i <= machines; i++ {
		if i%8 == 0 {
			continue // stays new
		}
		r.ingot("enter-maintenance", name(i))
		if i%6 != 0 {
			r.ingot("exit-maintenance", name(i))
		}
	}
	r.ingot("flag", "web-5", "RMA", "--comment", "power supply ordered")
}

// one is the name of one of the many machines.
func one(i int) string { return fmt.Sprintf("node-%04d", i) }

// register makes the many machines, and tokens for their agents.
func (r *rig) register() []string {
	r.t.Helper()
	bundles := make([]string, many)
	machines, admin := r.c.Machines(), r.c.Admin()
	r.all(func(ctx context.Context, i int) error {
		_, err := machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: one(i),
			Spec: &pb.MachineSpec{Rack: fmt.Sprintf("r%d", 100+i/40), Group: fmt.Sprintf("g%d", i%5)}}})
		if err != nil {
			return err
		}
		t, err := admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{MachineId: one(i)})
		bundles[i] = t.GetBundle()
		return err
	})
	return bundles
}

// serve puts the many machines in service, and has some of them reboot.
func (r *rig) serve() {
	r.t.Helper()
	machines := r.c.Machines()
	r.all(func(ctx context.Context, i int) error {
		_, err := machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: one(i), RequestId: "enter"})
		return err
	})
	r.await("phase=MAINTENANCE")
	r.all(func(ctx context.Context, i int) error {
		_, err := machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: one(i), RequestId: "exit"})
		return err
	})
	r.await("effective_state=IDLE")
	r.all(func(ctx context.Context, i int) error {
		if i%10 != 0 {
			return nil
		}
		_, err := machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: one(i), RequestId: "reboot"})
		return err
	})
	testkit.Eventually(r.t, 5*time.Minute, func() bool {
		ops := harness.Must(r.t, r.c.Operations().ListOperations,
			&pb.ListOperationsRequest{Filter: "type=REBOOT,phase=SUCCEEDED", PageSize: 1})
		return ops.GetTotalSize() == many/10
	}, "the machines do not reboot")
	r.await("effective_state=IDLE")
}

func (r *rig) all(do func(ctx context.Context, i int) error) {
	r.t.Helper()
	if err := fleet.Parallel(r.t.Context(), many, do); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a filter matches all of the many machines.
func (r *rig) await(filter string) {
	r.t.Helper()
	testkit.Eventually(r.t, 5*time.Minute, func() bool {
		c := harness.Must(r.t, r.c.Machines().CountMachines,
			&pb.CountMachinesRequest{Filter: "machine_id=node-*," + filter})
		return c.GetTotal() == many
	}, "not all machines are at %s", filter)
}

func name(i int) string { return fmt.Sprintf("web-%d", i) }

func (r *rig) ingot(args ...string) string {
	r.t.Helper()
	code, out := r.c.Ingot(args...)
	if code != 0 {
		r.t.Fatalf("ingot %s: %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// browse runs the browser's script. What only this side can do the script asks for, a line at a time.
func (r *rig) browse(script string, env ...string) {
	r.t.Helper()
	web, err := filepath.Abs("../../controller/console/web")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), "node", "test/"+script)
	cmd.Dir = web
	cmd.Env = append(os.Environ(), "CONSOLE_URL=https://"+r.rest.Address(), "CONSOLE_TOKEN="+r.c.Token(),
		"CONSOLE_PASSWORD="+signon.Password,
		"CONSOLE_SHOTS="+os.Getenv("CONSOLE_SHOTS"))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var ask struct {
			Ask  string   `json:"ask"`
			Args []string `json:"args"`
		}
		if json.Unmarshal(lines.Bytes(), &ask) != nil {
			r.t.Log(lines.Text())
			continue
		}
		answer, _ := json.Marshal(map[string]string{"answer": r.do(ask.Ask, ask.Args)})
		if _, err := fmt.Fprintf(in, "%s\n", answer); err != nil {
			r.t.Error(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		r.t.Fatalf("the browser's script: %v", err)
	}
}

func (r *rig) do(what string, args []string) string {
	switch what {
	case "ingot":
		return r.ingot(args...)
	case "kill":
		r.c.Process.Kill()
	case "end-agents":
		if err := r.agents.Kill(); err != nil {
			r.t.Error(err)
		}
	case "start":
		r.start()
	case "site":
		r.site()
	case "freeze":
		r.rest.Freeze()
	case "thaw":
		r.rest.Thaw()
	case "token-id":
		for _, token := range harness.Must(r.t, r.c.Admin().ListAPITokens, &pb.ListAPITokensRequest{}).GetTokens() {
			if token.GetName() == args[0] {
				return token.GetTokenId()
			}
		}
	case "link":
		// The link names the listener, which is behind the relay here.
		return strings.Replace(strings.TrimSpace(r.ingot("console")), r.c.Addresses().REST, r.rest.Address(), 1)
	default:
		r.t.Errorf("the script asks for %q", what)
	}
	return "done"
}
