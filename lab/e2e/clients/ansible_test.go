//go:build ansible

package clients

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// ansible is Debian's ansible-core with the collection, as ansible-galaxy installs it.
type ansible struct {
	t    *testing.T
	s    site
	env  []string
	dirs string // where the playbooks are
}

func newAnsible(t *testing.T) *ansible {
	t.Helper()
	a := &ansible{t: t, s: start(t)}
	a.s.rest = harness.NewRelay(t, "tcp", a.s.Addresses().REST)
	collection, err := filepath.Abs(filepath.Join("..", "..", "..", "integrations", "ansible"))
	if err != nil {
		t.Fatal(err)
	}
	home, collections := t.TempDir(), t.TempDir()
	a.dirs = filepath.Join(collection, "tests")
	a.env = append(
		os.Environ(),
		"HOME="+home,
		"ANSIBLE_HOME="+home,
		"ANSIBLE_REMOTE_TEMP="+home,
		"ANSIBLE_LOCAL_TEMP="+home,
		"ANSIBLE_NOCOLOR=1",
		"ANSIBLE_COLLECTIONS_PATH="+collections,
		"ANSIBLE_LOCALHOST_WARNING=False",
		"INGOT_URL=https://"+a.s.rest.Address(),
		"INGOT_CA_FILE="+a.s.CAFile(),
		"INGOT_TOKEN_FILE="+a.s.tokenFile,
	)
	if code, out := a.run(
		"ansible-galaxy",
		"collection",
		"install",
		"--offline",
		"-p",
		collections,
		collection,
	); code != 0 {
		t.Fatalf("install: %d: %s", code, out)
	}
	return a
}

// installed is the path of one of Ansible's programs: Debian's, or that of a folder that a run names.
func installed(program string) string {
	return filepath.Join(cmp.Or(os.Getenv("INGOT_TEST_ANSIBLE"), "/usr/bin"), program)
}

func (a *ansible) command(program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(installed(program), args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = a.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	return cmd, &out
}

func (a *ansible) run(program string, args ...string) (int, string) {
	a.t.Helper()
	cmd, out := a.command(program, args...)
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		a.t.Fatalf("%s: %v: %s", program, err, out)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// play runs a playbook under variables, and returns the number of tasks with changes.
func (a *ansible) play(name string, vars map[string]any, args ...string) (changed int, out string) {
	a.t.Helper()
	code, out := a.run("ansible-playbook", a.playArgs(name, vars, args...)...)
	if code != 0 {
		a.t.Fatalf("%s: %d: %s", name, code, out)
	}
	return a.changed(out), out
}

// begin starts a playbook, and kills its remaining processes at the end.
func (a *ansible) begin(name string, vars document) (*exec.Cmd, *bytes.Buffer) {
	a.t.Helper()
	cmd, out := a.command("ansible-playbook", a.playArgs(name, vars)...)
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // it may be gone already
	return cmd, out
}

func (a *ansible) playArgs(name string, vars map[string]any, args ...string) []string {
	a.t.Helper()
	raw, err := json.Marshal(vars)
	if err != nil {
		a.t.Fatal(err)
	}
	return append([]string{filepath.Join(a.dirs, name), "-e", string(raw)}, args...)
}

var recap = regexp.MustCompile(`(?m)^\S+ +: ok=\d+ +changed=(\d+) `)

func (a *ansible) changed(out string) int {
	a.t.Helper()
	m := recap.FindStringSubmatch(out)
	if m == nil {
		a.t.Fatalf("no recap in %s", out)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

// failed runs a playbook that must fail, and holds what it prints.
func (a *ansible) failed(name string, vars map[string]any, want ...string) {
	a.t.Helper()
	code, out := a.run("ansible-playbook", a.playArgs(name, vars)...)
	for _, w := range want {
		if code == 0 || !strings.Contains(out, w) {
			a.t.Errorf("%s with %v ended with %d and does not say %q: %s", name, vars, code, w, out)
		}
	}
}

type document = map[string]any

// TestAnsibleReconciles brings machines into a playbook's state, and has it repair foreign changes.
func TestAnsibleReconciles(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	machine := func(name, mac string) document {
		return document{"name": name, "labels": document{"env": "prod", "tier": 3, "hot": true}, "spec": document{
			"site": "oslo", "rack": "r42", "group": "web", "mac_addresses": []string{mac}, "provider": "fake",
		}}
	}
	vars := document{"machines": []document{machine("a-1", "52-54-00-AA-00-01"), machine("a-2", "5254.00aa.0002")}}
	const play = "reconcile.yml"

	if n, out := a.play(play, vars, "--check", "--diff"); n != 1 || !strings.Contains(out, `+    "spec.rack": "r42"`) {
		t.Errorf("the check changed %d and printed %s", n, out)
	}
	if got, err := harness.Call(
		t,
		a.s.Machines().GetMachine,
		&baremetalv1.GetMachineRequest{MachineId: "a-1"},
	); err == nil {
		t.Fatalf("the check has made %v", got)
	}
	if n, out := a.play(play, vars); n != 1 {
		t.Errorf("the first run changed %d: %s", n, out)
	}
	is := func(id, rack, label string) {
		t.Helper()
		m := a.s.Machine(id)
		if m.GetSpec().GetRack() != rack || m.GetLabels()["env"] != label || m.GetLabels()["tier"] != "3" ||
			m.GetLabels()["hot"] != "true" || m.GetSpec().GetSite() != "oslo" {
			t.Errorf("%s is %v", id, m)
		}
	}
	is("a-1", "r42", "prod")
	versions := func() (out []int64) {
		for _, id := range []string{"a-1", "a-2"} {
			out = append(out, a.s.Machine(id).GetVersion())
		}
		return out
	}
	before := versions()
	if n, out := a.play(play, vars); n != 0 || !slices.Equal(before, versions()) {
		t.Errorf("the second run changed %d, and versions %v to %v: %s", n, before, versions(), out)
	}

	// Drift: what the playbook names comes back, what it doesn't stays.
	args := []string{"machine", "update", "a-2", "--rack", "r7", "--location", "cellar", "--label", "env-", "--label",
		"owner=me"}
	if code, out := a.s.Ingot(args...); code != 0 {
		t.Fatalf("ingot %v: %d: %s", args, code, out)
	}
	if n, out := a.play(play, vars, "--check", "--diff"); n != 1 || !strings.Contains(out, `-    "spec.rack": "r7"`) {
		t.Errorf("the check of drift changed %d and printed %s", n, out)
	}
	is("a-2", "r7", "")
	if n, out := a.play(play, vars, "--diff"); n != 1 || strings.Contains(out, "changed: [localhost] => (item=a-1)") {
		t.Errorf("the repair changed %d: %s", n, out)
	}
	is("a-2", "r42", "prod")
	if m := a.s.Machine("a-2"); m.GetLabels()["owner"] != "me" || m.GetSpec().GetLocation() != "cellar" {
		t.Errorf("what the playbook does not name was changed: %v", m)
	}
	if n, out := a.play(play, vars); n != 0 {
		t.Errorf("after the repair %d changed: %s", n, out)
	}

	// An empty value clears. The controller away for a while is no failure, though something takes connections for it.
	cleared := document{"machines": []document{
		{"name": "a-2", "labels": document{"owner": nil}, "spec": document{"location": ""}},
	}}
	a.s.rest.Block()
	taken := a.s.rest.Accepted()
	again, said := a.begin(play, cleared)
	testkit.Eventually(t, rig.Soon, func() bool { return a.s.rest.Accepted() > taken+1 }, "nothing is called again")
	a.s.restart()
	if err := again.Wait(); err != nil {
		t.Fatalf("with the controller away: %v: %s", err, said)
	}
	if m := a.s.Machine("a-2"); m.GetLabels()["owner"] != "" || m.GetSpec().GetLocation() != "" {
		t.Errorf("not cleared: %v", m)
	}

	a.failed(play, document{"machines": []document{machine("a-3", "no mac")}}, "INVALID_FIELD", "spec.mac_addresses")
	a.failed(play, document{"machines": []document{machine("a-3", "52:54:00:aa:00:01")}}, "MAC_ADDRESS_IN_USE")

	vars["state"] = "absent"
	if n, _ := a.play(play, vars, "--check"); n != 1 || a.s.Machine("a-1").GetDeletedAt() != nil {
		t.Errorf("the check of absence changed %d", n)
	}
	if n, out := a.play(play, vars); n != 1 || a.s.Machine("a-1").GetDeletedAt() == nil {
		t.Errorf("the removal changed %d: %s", n, out)
	}
	if n, out := a.play(play, vars); n != 0 {
		t.Errorf("the second removal changed %d: %s", n, out)
	}
}

// effects counts what a machine's world has seen.
func effects(m *harness.Machine, kind sim.Kind) (n int) {
	for _, r := range m.Journal() {
		if r.Stage == sim.StageEffect && r.Kind == kind {
			n++
		}
	}
	return n
}

// TestAnsibleWorksOnce kills ansible-playbook in the middle of a reboot and of an installation, and runs it again.
func TestAnsibleWorksOnce(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	m := a.s.NewMachine(t, harness.MachineOptions{ID: "slow", Delay: 3 * time.Second, RepaveTime: 3 * time.Second})
	m.WaitConnected()
	for _, action := range []string{"enter_maintenance", "exit_maintenance"} {
		vars := document{"machine": m.ID, "action_wanted": action}
		if n, out := a.play("operation.yml", vars, "--check"); n != 1 {
			t.Errorf("the check of %s changed %d: %s", action, n, out)
		}
		if n, out := a.play("operation.yml", vars); n != 1 {
			t.Errorf("%s changed %d: %s", action, n, out)
		}
		if n, out := a.play("operation.yml", vars); n != 0 {
			t.Errorf("%s again changed %d: %s", action, n, out)
		}
	}

	reboots, writes := effects(m, sim.KindReboot), effects(m, sim.KindRepave)
	for _, c := range []struct {
		request, action, image string
		only                   bool // kill the main process alone: its worker goes on
		maintenance            bool
		writes                 int
	}{
		{request: "kernel-1", action: "reboot"},
		{request: "kernel-2", action: "reboot", only: true},
		{request: "image-1", action: "reimage", image: "ubuntu-2204", maintenance: true, writes: 1},
	} {
		vars := document{"machine": m.ID, "action_wanted": c.action, "request": c.request, "maintenance": c.maintenance}
		if c.image != "" {
			vars["image"] = c.image
		}
		if n, _ := a.play("operation.yml", vars, "--check"); n != 1 || len(operations(a.s, m.ID, c.request)) != 0 {
			t.Errorf("%s: the check changed %d", c.request, n)
		}
		a.killed(m.ID, c.request, c.only, vars)
		// The controller goes too, while the second run waits.
		again, said := a.begin("operation.yml", vars)
		a.s.restart()
		err, out := again.Wait(), said.String()
		if err != nil || !strings.Contains(out, "SUCCEEDED") || !strings.Contains(out, "phase READY, system of") {
			t.Fatalf("%s again ended with %v: %s", c.request, err, out)
		}
		if n, out := a.play("operation.yml", vars); n != 0 {
			t.Errorf("%s a third time changed %d: %s", c.request, n, out)
		}
		reboots, writes = reboots+1, writes+c.writes
		if got := effects(m, sim.KindReboot); got != reboots {
			t.Errorf("after %s there are %d reboots, want %d", c.request, got, reboots)
		}
		if got := effects(m, sim.KindRepave); got != writes {
			t.Errorf("after %s there are %d writes, want %d", c.request, got, writes)
		}
		if ops := operations(a.s, m.ID, c.request); len(ops) != 1 {
			t.Errorf("%s is %v", c.request, ops)
		}
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// TestAnsibleProvisions runs the role of the collection until nothing is left to do. An option that is missing fails
// before the machine is touched.
func TestAnsibleProvisions(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	m := a.s.NewMachine(t, harness.MachineOptions{ID: "new"})
	m.WaitConnected()
	vars := document{"provision_machine_id": m.ID, "provision_image": "ubuntu-2204",
		"provision_labels": document{"tier": "web"},
		"provision_spec":   document{"rack": "r9"}, "provision_seed": document{"hostname": "web-9"}}
	const play = "provision.yml"
	writes := effects(m, sim.KindRepave)
	a.failed(play, vars, "missing required arguments: provision_request_id")
	if rack := a.s.Machine(m.ID).GetSpec().GetRack(); rack == "r9" {
		t.Error("a machine was changed though an argument is missing")
	}
	vars["provision_request_id"] = "wave-1"
	if n, _ := a.play(play, vars, "--check"); n != 2 || len(operations(a.s, m.ID, "wave-1")) != 0 {
		t.Errorf("the check changed %d", n)
	}
	for _, want := range []int{2, 0} {
		if n, out := a.play(play, vars); n != want || !strings.Contains(out, "SUCCEEDED") {
			t.Errorf("a run changed %d, want %d: %s", n, want, out)
		}
	}
	is := a.s.Machine(m.ID)
	if is.GetStatus().GetPhase() != baremetalv1.MachineStatus_READY || is.GetSpec().GetRack() != "r9" ||
		is.GetLabels()["tier"] != "web" {
		t.Errorf("the machine is %v", is)
	}
	if got := effects(m, sim.KindRepave) - writes; got != 1 {
		t.Errorf("the image was written %d times", got)
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// TestAnsibleSaysWhy: refused, failed and late work has its reason and its next step.
func TestAnsibleSaysWhy(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	work := func(machine, action, request string, more ...any) document {
		out := document{"machine": machine, "action_wanted": action, "request": request}
		for i := 0; i < len(more); i += 2 {
			out[more[i].(string)] = more[i+1]
		}
		return out
	}
	id := a.s.machine
	if code, out := a.s.Ingot("reboot", id, "--request-id", "kernel-1"); code != 0 {
		t.Fatalf("reboot: %d: %s", code, out)
	}
	a.failed("operation.yml", work(id, "reimage", "kernel-1", "image", "ubuntu-2204"), "REQUEST_ID_REUSED")
	a.s.Wait(operations(a.s, id, "kernel-1")[0].GetOperationId(), rig.Soon)
	a.failed("operation.yml", work(id, "reimage", "image-2", "image", "ubuntu-2204"), "WRONG_PHASE")
	a.failed("operation.yml", document{"machine": id, "action_wanted": "reboot"}, "request_id is required")
	a.s.Register(&baremetalv1.Machine{MachineId: "lonely", Spec: &baremetalv1.MachineSpec{Provider: "fake"}})
	a.play("operation.yml", document{"machine": "lonely", "action_wanted": "enter_maintenance"})
	a.failed("operation.yml", work("lonely", "reboot", "r-1", "wait_timeout", 2), "WAIT_TIMEOUT", "run again waits for it")
	a.failed("operation.yml", work("lonely", "reboot", "r-1"), "NOBODY_REACHES_MACHINE", "next_steps")
	if ops := operations(a.s, "lonely", "r-1"); len(ops) != 1 {
		t.Errorf("the reboot that failed is %v", ops)
	}
}

func operations(s site, machine, request string) (out []*baremetalv1.Operation) {
	for _, o := range s.OperationsOf(machine) {
		if o.GetRequestId() == request {
			out = append(out, o)
		}
	}
	return out
}

// killed runs a playbook and kills it once its operation is there.
func (a *ansible) killed(machine, request string, only bool, vars document) {
	a.t.Helper()
	cmd, out := a.begin("operation.yml", vars)
	testkit.Eventually(a.t, rig.Soon, func() bool { return len(operations(a.s, machine, request)) > 0 },
		"%s was not asked for", request)
	target := -cmd.Process.Pid
	if only {
		target = cmd.Process.Pid
	}
	if err := syscall.Kill(target, syscall.SIGKILL); err != nil {
		a.t.Fatal(err)
	}
	// With its worker alive, its output stays open; WaitDelay ends the wait for it.
	if err := cmd.Wait(); err == nil {
		a.t.Fatalf("%s was not killed: %s", request, out)
	}
	if o := operations(a.s, machine, request)[0]; harness.Ended(o) {
		a.t.Logf("%s had ended before the kill", request)
	}
}

// TestAnsibleInventory holds groups and variables of hosts, and that nothing of them is evaluated.
func TestAnsibleInventory(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	touched := filepath.Join(t.TempDir(), "touched")
	trap := fmt.Sprintf("{{ lookup('pipe', 'touch %s') }}", touched)
	args := []string{"machine", "update", a.s.machine, "--site", "oslo", "--rack", "r42", "--group", "web", "--label",
		"env=prod", "--ssh-endpoint", "10.0.0.7:2222"}
	if code, out := a.s.Ingot(args...); code != 0 {
		t.Fatalf("ingot %v: %d: %s", args, code, out)
	}
	a.s.Register(&baremetalv1.Machine{MachineId: "hostile", Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "oslo",
		Rack: trap, Location: trap, InstallAddress: "10.0.0.9/24"}})
	a.s.Register(&baremetalv1.Machine{MachineId: "elsewhere", Spec: &baremetalv1.MachineSpec{Provider: "fake"}})
	testkit.Eventually(t, rig.Soon, func() bool {
		_, err := harness.Call(t, a.s.Machines().GetInventory, &baremetalv1.GetInventoryRequest{MachineId: a.s.machine})
		return err == nil
	}, "no inventory")
	file := filepath.Join(a.dirs, "fleet.ingot.yml")

	code, graph := a.run("ansible-inventory", "-i", file, "--graph")
	for _, want := range []string{
		"|--@site_oslo:\n  |  |--hostile\n  |  |--m-1\n", "|--@group_web:\n  |  |--m-1\n",
		"|--@label_env_prod:\n  |  |--m-1\n", "|--@rack_r42:\n  |  |--m-1\n",
		"|--@simulated:\n  |  |--m-1\n", "|--@state_new:\n  |  |--hostile\n",
	} {
		if code != 0 || !strings.Contains(graph, want) {
			t.Errorf("the graph (%d) lacks\n%s\nin\n%s", code, want, graph)
		}
	}
	if strings.Contains(graph, "elsewhere") {
		t.Errorf("the filter lets everything through: %s", graph)
	}
	host := a.host(file, a.s.machine)
	if host["ansible_host"] != "10.0.0.7" || host["ansible_port"] != 2222.0 || host["gib"] != "64" ||
		host["ingot_machine_id"] != a.s.machine || len(host["ingot_macs"].([]any)) != 2 ||
		host["ingot_labels"].(document)["env"] != "prod" {
		t.Errorf("the host is %v", host)
	}
	if other := a.host(file, "hostile"); other["ansible_host"] != "10.0.0.9" || other["gib"] != "0" {
		t.Errorf("the host is %v", other)
	}
	a.env = append(a.env, "ANSIBLE_NOCOWS=1")
	code, out := a.run("ansible-playbook", "-i", file, filepath.Join(a.dirs, "harmless.yml"))
	if code != 0 || strings.Count(out, "lookup('pipe'") != 2 {
		t.Errorf("the texts were printed as (%d) %s", code, out)
	}
	if _, err := os.Stat(touched); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a text of a machine was evaluated: %v", err)
	}
	a.env = append(a.env, "INGOT_CA_FILE=/etc/ssl/certs/ca-certificates.crt")
	taken := a.s.rest.Accepted()
	code, out = a.run("ansible-inventory", "-i", file, "--list")
	if n := a.s.rest.Accepted() - taken; !strings.Contains(out, "certificate") || n != 1 {
		t.Errorf("with another root the inventory called %d times and said (%d) %s", n, code, out)
	}
}

func (a *ansible) host(file, name string) document {
	a.t.Helper()
	cmd := exec.CommandContext(context.Background(), installed("ansible-inventory"), "-i", file, "--host", name)
	cmd.Env = a.env
	raw, err := cmd.Output()
	var out document
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		a.t.Fatalf("host %s: %v: %s", name, err, raw)
	}
	return out
}

// TestAnsibleDocuments renders every page, and holds that the module takes each field of a spec.
func TestAnsibleDocuments(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	plugins := map[string][]string{"inventory": {"fleet"}, "module": {"machine", "machine_info", "operation"}}
	for kind, names := range plugins {
		for _, name := range names {
			code, out := a.run("ansible-doc", "-t", kind, "ingot.metal."+name)
			for _, part := range []string{"INGOT.METAL." + strings.ToUpper(name), "EXAMPLES:", "- url", "- token_file"} {
				if code != 0 || !strings.Contains(strings.ReplaceAll(out, "= url", "- url"), part) {
					t.Errorf("ansible-doc of %s (%d) lacks %s: %s", name, code, part, out)
				}
			}
		}
	}
	cmd, out := a.command("ansible-doc", "-j", "ingot.metal.machine")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var page map[string]struct {
		Doc struct {
			Options map[string]struct{ Suboptions map[string]any }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &page); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var fields []string
	for i := range (&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor().Fields().Len() {
		fields = append(fields, string((&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor().Fields().Get(i).Name()))
	}
	slices.Sort(fields)
	got := slices.Sorted(maps.Keys(page["ingot.metal.machine"].Doc.Options["spec"].Suboptions))
	if !slices.Equal(got, fields) {
		t.Errorf("the module takes %v, a spec has %v", got, fields)
	}
}
