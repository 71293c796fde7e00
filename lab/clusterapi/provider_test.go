//go:build clusterapi

package clusterapi

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/harness"
)

func maskOf(path string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: []string{path}} }

// TestProvider runs everything in one management cluster: it takes long to start.
func TestProvider(t *testing.T) {
	g := newManagement(t)
	for _, c := range []struct {
		name string
		test func(*management)
	}{
		{"the commands of the README", (*management).testReadme},
		{"the life of a machine", (*management).testLife},
		{"killed again and again", (*management).testKilled},
		{"two providers and too few machines", (*management).testRace},
		{"drift", (*management).testDrift},
		{"a deletion amid the installation", (*management).testDeletedEarly},
		{"what is refused", (*management).testRefused},
		{"a fleet that was there before", (*management).testAdoption},
	} {
		t.Run(c.name, func(t *testing.T) {
			part := *g
			part.t = t
			c.test(&part)
		})
	}
}

// testLife: one machine is claimed, installed with the bootstrap data, provisioned, seen by the core, and erased.
func (g *management) testLife() {
	g.install()
	defer g.end(g.provider())
	pool := g.pool("life", 1, harness.MachineOptions{})
	g.cluster("life")
	g.machine("life", "life-1", nil)
	id := g.provisioned("life-1")
	if o := g.Admin.Get(infra("life-1")); g.claimOf(id) != kubetest.Text(o, "metadata", "uid") {
		g.t.Errorf("%s carries %q, and is held by %v", id, g.claimOf(id), o)
	}
	g.seenByCore("life-1", id)
	if n := effects(pool[id], sim.KindRepave); n != 1 {
		g.t.Errorf("the machine was installed %d times", n)
	}
	given := g.seeds(id)
	g.deleted("life-1")
	if got := [2]int{effects(pool[id], sim.KindErase), effects(pool[id], sim.KindRepave)}; got != [2]int{1, 2} {
		g.t.Errorf("the machine was erased %d times, installed %d times", got[0], got[1])
	}
	g.idle(id)
	if want := []string{g.seedOf(exampleOf(g.t))}; !slices.Equal(given, want) || !slices.Equal(g.seeds(id), want) {
		g.t.Errorf("the installation has the seeds %v, with the erasure %v; want %v", given, g.seeds(id), want)
	}
}

// seeds names what the systems of a machine were given for their first boot.
func (g *management) seeds(id string) (out []string) {
	for _, op := range g.c.OperationsOf(id) {
		if seed := op.GetParams()["seed"]; seed != "" {
			out = append(out, seed)
		}
	}
	return out
}

// seedOf names the bootstrap data of an example, by giving another machine the same: the same content has one name.
func (g *management) seedOf(example []object) string {
	g.t.Helper()
	var data string
	for _, o := range example {
		if kubetest.Text(o, "kind") == "Secret" {
			data = kubetest.Text(o, "stringData", "value")
		}
	}
	g.pool("twin", 1, harness.MachineOptions{})
	g.ingot("enter-maintenance", "twin-m0")
	op := harness.Must(g.t, g.c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
		MachineId: "twin-m0", RequestId: "twin", ImageRef: "ubuntu-2204", Seed: &baremetalv1.SystemSeed{UserData: data},
	})
	if data == "" || op.GetParams()["seed"] == "" {
		g.t.Fatalf("%q has no name: %v", data, op)
	}
	return op.GetParams()["seed"]
}

func (g *management) kubectl(args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), kubetest.Program(g.t, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+g.adminConfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

var shellBlock = regexp.MustCompile("(?s)```bash\n(.*?)```")

// testReadme types what the README shows, in its order. The pool has one machine, m-1.
func (g *management) testReadme() {
	t := g.t
	m := g.c.NewMachine(t, harness.MachineOptions{ID: "m-1"})
	m.WaitConnected()
	readme, err := os.ReadFile(ours + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := shellBlock.FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README shows no commands")
	}
	for line := range strings.Lines(string(block[1])) {
		g.typed(strings.TrimSpace(line))
	}
	testkit.Eventually(t, soon, func() bool { return g.Admin.Get(infra("edge-1")) == nil && g.claimOf("m-1") == "" },
		"the cluster is not deleted: %v", lazy(func() string { return fmt.Sprint(g.Admin.Get(infra("edge-1"))) }))
	// erase is true there: the disks were erased, and the image was written a second time, without the secrets.
	if got := [2]int{effects(m, sim.KindErase), effects(m, sim.KindRepave)}; got != [2]int{1, 2} {
		t.Errorf("erased %d times, installed %d times", got[0], got[1])
	}
	if s := g.c.Machine("m-1").GetStatus(); s.GetEffectiveState() != baremetalv1.MachineStatus_IDLE {
		t.Errorf("the machine that was given back is %v: %s", s.GetEffectiveState(), s.GetAttentionMessage())
	}
}

// typed runs one line. The programs are built already, and the provider is started by its line, at an address of the
// test's own.
func (g *management) typed(line string) {
	t := g.t
	t.Log("$ " + line)
	words := strings.Fields(line)
	switch {
	case words[0] == "make":
		return
	case strings.HasPrefix(line, "ingot token create"):
		if code, out := g.c.Ingot(words[1:6]...); code != 0 {
			t.Fatal(out)
		}
	case words[0] == "ingot":
		if code, out := g.c.Ingot(words[1:]...); code != 0 {
			t.Fatal(out)
		}
	case strings.HasSuffix(words[0], "ingot-cluster-api"):
		for _, flag := range []string{"--server", "--ca-file", "--token-file"} {
			if !strings.Contains(line, flag) {
				t.Errorf("the provider is started without %s", flag)
			}
		}
		g.provider()
	case words[0] == "kubectl":
		cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "KUBECONFIG="+g.adminConfig,
			"PATH="+filepath.Dir(kubetest.Program(t, "kubectl"))+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if t.Log(string(out)); err != nil {
			t.Fatal(err, g.Admin.Get(infra("edge-1")))
		}
	default:
		t.Errorf("what is %q?", line)
	}
	if strings.Contains(line, "config/crd") {
		g.install() // again: it waits until they are served
	}
	if strings.HasPrefix(line, "kubectl wait") {
		g.seenByCore("edge-1", "m-1")
	}
}

// seenByCore holds the contract's fields, as the core's controllers copy them into the Machine.
func (g *management) seenByCore(name, id string) {
	g.t.Helper()
	var o object
	testkit.Eventually(g.t, soon, func() bool {
		o = g.Admin.Get(core(name))
		return kubetest.Text(o, "spec", "providerID") == "ingot://"+id &&
			kubetest.Text(o, "status", "initialization", "infrastructureProvisioned") == "true" &&
			condition(o, "InfrastructureReady")["status"] == "True"
	}, "the core does not see that %s is provisioned: %v", name, lazy(func() string { return fmt.Sprint(o) }))
	if got := kubetest.Text(o, "status", "failureDomain"); got != "default" {
		g.t.Errorf("the Machine's failure domain is %q", got)
	}
	if got := kubetest.Text(o, "status", "addresses"); !strings.Contains(got, id) {
		g.t.Errorf("the Machine's addresses are %s", got)
	}
}

// testDrift: a foreign change of a machine in Ingot is shown, and the claim is held.
func (g *management) testDrift() {
	g.install()
	defer g.end(g.provider())
	pool := g.pool("drift", 1, harness.MachineOptions{})
	g.cluster("drift")
	g.machine("drift", "drift-1", func(_, infra, _ object) { infra["spec"].(object)["erase"] = false })
	id := g.provisioned("drift-1")
	held := g.claimOf(id)

	g.unlabel(id)
	testkit.Eventually(g.t, soon, func() bool { return g.claimOf(id) == held }, "the claim does not come back")

	g.ingot("enter-maintenance", id)
	g.ready("drift-1", "InMaintenance")
	g.ingot("exit-maintenance", id)
	g.ready("drift-1", "Provisioned")

	if err := pool[id].Stop(); err != nil {
		g.t.Log(err)
	}
	g.eventually("drift-1", "seen as lost", func(o object) bool {
		r := condition(o, "Ready")
		return r["status"] == "False" && strings.ToUpper(r["reason"].(string)) == r["reason"]
	})
	g.t.Logf("a lost machine is %v", condition(g.Admin.Get(infra("drift-1")), "Ready"))
	pool[id].Start()
	g.ready("drift-1", "Provisioned")

	// Maintenance that an operator has begun outlives the Machine.
	g.ingot("enter-maintenance", id)
	g.deleted("drift-1")
	m := g.c.Machine(id)
	if g.claimOf(id) != "" || m.GetStatus().GetPhase() != baremetalv1.MachineStatus_MAINTENANCE {
		g.t.Errorf("the machine that was given back carries %q and is %v", g.claimOf(id), m.GetStatus().GetPhase())
	}
	if n := effects(pool[id], sim.KindErase); n != 0 {
		g.t.Errorf("it was erased %d times without being told to", n)
	}
	g.ingot("exit-maintenance", id)

	// A machine that is not in Ingot any more is said to be so, and does not keep its Machine from being deleted.
	g.machine("drift", "drift-2", nil)
	g.provisioned("drift-2")
	harness.Must(g.t, g.c.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: id, Purge: true})
	g.ready("drift-2", "MACHINE_NOT_FOUND")
	g.deleted("drift-2")
}

func (g *management) ingot(args ...string) {
	g.t.Helper()
	if code, out := g.c.Ingot(args...); code != 0 {
		g.t.Fatalf("ingot %s: %s", strings.Join(args, " "), out)
	}
}

func (g *management) end(p interface{ Kill() error }) {
	if err := p.Kill(); err != nil {
		g.t.Error(err)
	}
}

// testKilled kills the provider with SIGKILL: once in the middle of the installation, and else every moment, through
// the whole life of a machine.
func (g *management) testKilled() {
	pool := g.pool("killed", 2, harness.MachineOptions{RepaveTime: 3 * time.Second})
	g.cluster1("killed")
	p := g.provider()
	g.machine("killed", "killed-1", nil)
	var id string
	testkit.Eventually(g.t, soon, func() bool {
		id = kubetest.Text(g.Admin.Get(infra("killed-1")), "status", "machineID")
		return id != "" && effects(pool[id], sim.KindRepave) == 1
	}, "the installation does not begin")
	g.end(p)
	if o := g.Admin.Get(infra("killed-1")); kubetest.Text(o, "spec", "providerID") != "" {
		g.t.Fatal("the provider was killed too late to show anything")
	}
	until := func(what string, done func() bool) (kills int) {
		for deadline := time.Now().Add(soon); !done(); kills++ {
			if time.Now().After(deadline) {
				g.t.Fatalf("%s after %d kills: %v", what, kills, g.Admin.Get(infra("killed-1")))
			}
			p := g.provider()
			select {
			case <-p.Gone():
				g.t.Fatal("the provider has ended by itself")
			case <-time.After(time.Duration(700+kills*137%900) * time.Millisecond):
			}
			g.end(p)
		}
		return kills
	}
	kills := until("not provisioned", func() bool {
		return kubetest.Text(g.Admin.Get(infra("killed-1")), "status", "initialization", "provisioned") == "true"
	})
	if n := effects(pool[id], sim.KindRepave); n != 1 {
		g.t.Errorf("the machine was installed %d times", n)
	}
	g.remove("killed-1")
	kills += until("not deleted", func() bool { return g.Admin.Get(infra("killed-1")) == nil })
	if got := [2]int{effects(pool[id], sim.KindErase), effects(pool[id], sim.KindRepave)}; got != [2]int{1, 2} {
		g.t.Errorf("the machine was erased %d times, installed %d times", got[0], got[1])
	}
	total := 0
	for _, m := range pool {
		total += effects(m, sim.KindRepave)
	}
	if total != 2 {
		g.t.Errorf("%d installations in the whole pool", total)
	}
	g.t.Logf("%d kills; %d operations on the machine", kills+1, len(g.c.OperationsOf(id)))
	g.idle(id)
}

// cluster1 makes a cluster while no provider runs that would take its infrastructure in.
func (g *management) cluster1(name string) {
	g.install()
	p := g.provider()
	g.cluster(name)
	g.end(p)
}

func (g *management) idle(id string) {
	g.t.Helper()
	testkit.Eventually(g.t, soon, func() bool {
		return g.claimOf(id) == "" &&
			g.c.Machine(id).GetStatus().GetEffectiveState() == baremetalv1.MachineStatus_IDLE
	}, "%s is not free: %v", id, lazy(func() string { return g.c.Machine(id).String() }))
}

// testRace: two providers work on six IngotMachines and four machines.
func (g *management) testRace() {
	const machines, wanted = 4, 6
	pool := g.pool("race", machines, harness.MachineOptions{})
	g.cluster1("race")
	for i := range wanted {
		g.machine("race", fmt.Sprintf("race-%d", i), func(_, infra, _ object) { infra["spec"].(object)["erase"] = false })
	}
	defer g.end(g.provider())
	defer g.end(g.provider())
	users := map[string]string{}
	testkit.Eventually(g.t, soon, func() bool {
		clear(users)
		waiting := 0
		for i := range wanted {
			o := g.Admin.Get(infra(fmt.Sprintf("race-%d", i)))
			if kubetest.Text(o, "status", "initialization", "provisioned") == "true" {
				users[kubetest.Text(o, "spec", "providerID")] = kubetest.Text(o, "metadata", "name")
			} else if condition(o, "Ready")["reason"] == "NoFreeMachine" {
				waiting++
			}
		}
		return len(users)+waiting == wanted && len(users) == machines
	}, "not every machine is used by one: %v", lazy(func() string { return fmt.Sprint(users) }))
	for id, m := range pool {
		if n := effects(m, sim.KindRepave); n != 1 {
			g.t.Errorf("%s was installed %d times", id, n)
		}
	}
	// One that is given back goes to one that waits.
	for id, name := range users {
		g.deleted(name)
		id = strings.TrimPrefix(id, "ingot://")
		testkit.Eventually(g.t, soon, func() bool { return effects(pool[id], sim.KindRepave) == 2 },
			"%s, which %s has given back, is not taken", id, name)
		break
	}
}

// testDeletedEarly: a Machine that is deleted while its machine is being installed releases it.
func (g *management) testDeletedEarly() {
	pool := g.pool("early", 1, harness.MachineOptions{RepaveTime: 3 * time.Second})
	g.install()
	defer g.end(g.provider())
	g.cluster("early")
	g.machine("early", "early-1", func(_, infra, _ object) { infra["spec"].(object)["erase"] = false })
	testkit.Eventually(g.t, soon, func() bool { return effects(pool["early-m0"], sim.KindRepave) == 1 },
		"the installation does not begin")
	g.deleted("early-1")
	if op := g.c.Machine("early-m0").GetStatus().GetActiveOperationId(); op != "" || g.claimOf("early-m0") != "" {
		g.t.Errorf("it was given back amid %q, with claim %q", op, g.claimOf("early-m0"))
	}
	g.machine("early", "early-2", nil)
	g.provisioned("early-2")
}

// testRefused: what cannot be done is a reason of the condition Ready, and nothing happens to a machine.
func (g *management) testRefused() {
	pool := g.pool("refused", 1, harness.MachineOptions{})
	g.install()
	defer g.end(g.provider())
	g.cluster("refused")
	spec := func(key string, value any) func(m, infra, secret object) {
		return func(_, infra, _ object) { infra["spec"].(object)[key] = value }
	}
	g.machine("refused", "refused-filter", spec("selector", "pool=refused"))
	g.ready("refused-filter", "INVALID_FILTER")
	g.machine("refused", "refused-none", spec("selector", "labels.pool=nowhere"))
	g.ready("refused-none", "NoFreeMachine")
	g.machine("refused", "refused-domain", func(m, _, _ object) { m["spec"].(object)["failureDomain"] = "elsewhere" })
	g.ready("refused-domain", "NoFreeMachine")
	g.machine("refused", "refused-format", func(_, _, secret object) {
		secret["stringData"].(object)["format"] = "ignition"
	})
	g.ready("refused-format", "BootstrapFormatUnsupported")
	g.deleted("refused-format")
	g.idleNew("refused-m0", pool)
	g.testProduction(pool)

	g.machine("refused", "refused-paused", func(_, infra, _ object) {
		infra["metadata"].(object)["annotations"] = object{"cluster.x-k8s.io/paused": "true"}
	})
	g.eventually("refused-paused", "paused", func(o object) bool { return condition(o, "Paused")["status"] == "True" })
	g.Admin.Merge(
		infra("refused-paused"),
		object{"metadata": object{"annotations": object{"cluster.x-k8s.io/paused": nil}}},
	)
	id := g.provisioned("refused-paused")
	// The machine's claim changes to another: nothing more is done to it, and the Machine can go.
	g.label(id, claim, "another")
	g.ready("refused-paused", "ClaimLost")
	g.deleted("refused-paused")
	if g.claimOf(id) != "another" || effects(pool[id], sim.KindErase) != 0 {
		g.t.Errorf("it carries %q, and was erased %d times", g.claimOf(id), effects(pool[id], sim.KindErase))
	}
	code, out := g.Admin.Try(http.MethodPatch, infra("refused-none"), "application/merge-patch+json",
		object{"spec": object{"image": "another"}})
	if code != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(out), "make another template") {
		g.t.Errorf("another image: %d %v", code, out)
	}
}

// testProduction: a machine in production that matches the selector, idle and labelled by others, is never taken. An
// offered one stays in service when its image is mistyped.
func (g *management) testProduction(pool map[string]*harness.Machine) {
	const id = "refused-m0"
	g.label(id, label.Owner, "payments")
	g.machine("refused", "refused-owned", nil)
	g.ready("refused-owned", "NoFreeMachine")
	g.label(id, label.Owner, "")
	g.label(id, label.Offered, "")
	g.ready("refused-owned", "NoFreeMachine")
	g.idleNew(id, pool)
	g.deleted("refused-owned")
	g.label(id, label.Offered, label.ClusterAPI)
	g.machine("refused", "refused-image", func(_, infra, _ object) {
		infra["spec"].(object)["agentless"] = true // a simulated machine has no installer that could
	})
	g.ready("refused-image", "CAPABILITY_MISSING")
	if phase := g.c.Machine(id).GetStatus().GetPhase(); phase == baremetalv1.MachineStatus_MAINTENANCE ||
		effects(pool[id], sim.KindRepave) != 0 {
		g.t.Errorf("after a refusal the machine is in %s", phase)
	}
	g.deleted("refused-image")
}

// idleNew holds that a machine has seen nothing.
func (g *management) idleNew(id string, pool map[string]*harness.Machine) {
	g.t.Helper()
	if n := effects(pool[id], sim.KindRepave); n != 0 || g.claimOf(id) != "" {
		g.t.Errorf("%s was installed %d times and carries %q", id, n, g.claimOf(id))
	}
}
