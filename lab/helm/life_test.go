//go:build helm

package helm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// Where the chart's objects are.
var objects = map[string]string{
	"the configuration": "/api/v1/namespaces/ingot/configmaps/ingot",
	"the Service":       "/api/v1/namespaces/ingot/services/ingot",
	"the metrics":       "/api/v1/namespaces/ingot/services/ingot-metrics",
	"the Deployment":    "/apis/apps/v1/namespaces/ingot/deployments/ingot",
	"the budget":        "/apis/policy/v1/namespaces/ingot/poddisruptionbudgets/ingot",
	"the policy":        "/apis/networking.k8s.io/v1/namespaces/ingot/networkpolicies/ingot",
	"the Job's policy":  "/apis/networking.k8s.io/v1/namespaces/ingot/networkpolicies/ingot-migrations",
}

const (
	claimPath  = "/api/v1/namespaces/ingot/persistentvolumeclaims/ingot-images"
	secretPath = "/api/v1/namespaces/ingot/secrets/ingot-keys"
)

// fleet holds the database, keys and machine that stay from one installation to the next.
type fleet struct {
	*place
	root    string
	machine *harness.Machine
	// operations are all that a client was told of.
	operations []string
}

// values writes those of a user, with the addresses of the pods as names that clients and agents dial.
func (p *place) values(digest string) {
	p.write("values.yaml", marshal(p.t, object{"names": append([]string{"ingot.example.org"}, p.addresses()...),
		"image": object{"digest": digest}, "advertise": object{"enrolment": []string{p.addresses()[0] + ":50053"}},
		"drain": object{"delaySeconds": 1, "timeoutSeconds": 5}}))
}

// TestTheChartsLife installs the first chart, upgrades to this tree's with another image and configuration, rolls back,
// uninstalls and installs again. A machine, its history and its agent go through all of it.
func TestTheChartsLife(t *testing.T) {
	p := newPlace(t)
	f := &fleet{place: p, root: filepath.Join(p.dir, "keys/root.crt")}
	old, err := filepath.Abs(first)
	if err != nil {
		t.Fatal(err)
	}

	p.values(digestOld)
	install := p.documented("helm install", "--timeout", "10m")
	p.withHook(func() {
		if !p.gone(objects["the Deployment"]) {
			t.Error("controllers are there before the schema")
		}
	}, append([]string{"helm", "install", "ingot", old}, install[4:]...))
	f.there()
	p.rollout()
	f.configuration()
	f.join()
	f.works("after the installation")

	p.values(digestNew)
	p.withHook(func() {
		if image := kubetest.Text(containerOf(t, p.deployment()), "image"); !strings.HasSuffix(image, digestOld) {
			t.Errorf("controllers of %s before the schema is theirs", image)
		}
	}, p.documented("helm upgrade", "--set", "config.default_image=ubuntu", "--timeout", "10m"))
	f.there()
	f.through("upgrade")
	f.runs("next", 2)
	f.works("after the upgrade")

	p.must(p.documented("helm rollback")...)
	if !p.gone(jobPath) {
		t.Error("a rollback migrates")
	}
	f.through("rollback")
	f.runs("next", 0)
	f.works("after the rollback")

	p.must(p.documented("helm uninstall")...)
	for what, path := range objects {
		if !p.gone(path) {
			t.Errorf("%s is left", what)
		}
	}
	for what, path := range map[string]string{"the claim": claimPath, "the keys": secretPath} {
		if p.gone(path) {
			t.Errorf("%s is not there any more", what)
		}
	}
	for _, x := range p.pods {
		x.stop()
	}
	p.pods = nil

	p.withHook(func() {}, install)
	f.there()
	p.rollout()
	f.works("after the second installation")
	f.pods[0].ingot(f.token, "audit", "verify")
}

// TestTheManifestsRun applies those of clusters without Helm, all at once: controllers wait for the schema.
func TestTheManifestsRun(t *testing.T) {
	p := newPlace(t)
	for range 2 { // as for an upgrade
		p.must(p.documented("kubectl -n ingot delete")...)
		p.must(p.documented("kubectl apply")...)
		for what, path := range objects {
			if p.gone(path) {
				t.Errorf("%s is not there", what)
			}
		}
		p.migrate()
		p.rollout()
	}
	for _, x := range p.pods {
		x.stop()
	}
}

// there holds that every object is.
func (f *fleet) there() {
	f.t.Helper()
	for what, path := range objects {
		if f.gone(path) {
			f.t.Errorf("%s is not there", what)
		}
	}
	if f.gone(claimPath) {
		f.t.Error("the claim is not there")
	}
	if !f.gone(jobPath) {
		f.t.Error("a Job that succeeded is left")
	}
}

// configuration checks that the program accepts the mounted configuration.
func (f *fleet) configuration() {
	f.t.Helper()
	cmd := f.pods[0].command("ingot-controller", "config", "check", "--config", "/etc/ingot/controller.yaml")
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Errorf("the configuration: %v\n%s", err, out)
	}
}

// client is of the newest pod.
func (f *fleet) client() *harness.Client {
	f.t.Helper()
	return harness.NewClient(f.t, f.pods[len(f.pods)-1].at("clients"), f.root, f.token)
}

// join registers a machine and starts its agent, which knows the addresses of all pods that there will be.
func (f *fleet) join() {
	f.t.Helper()
	addresses := f.addresses()
	for i := range addresses {
		addresses[i] += ":50052"
	}
	f.machine = f.client().NewMachine(f.t, harness.MachineOptions{ID: "m-1",
		Change: func(c *agent.Config) { c.Addresses = addresses }})
	f.machine.WaitConnected()
	rig.Maintenance(f.t, f.client(), "m-1")
}

// through replaces the pods while a reboot is under way, and holds that the reboot happens once.
func (f *fleet) through(what string) {
	f.t.Helper()
	before := f.reboots()
	id := rig.Reboot(f.t, f.client(), "m-1", what, 0).GetOperationId()
	f.operations = append(f.operations, id)
	f.rollout()
	rig.Ended(f.t, f.client().Wait(id, soon), rig.Succeeded, "")
	if got := f.reboots() - before; got != 1 {
		f.t.Errorf("%s: %d reboots, want 1", what, got)
	}
}

func (f *fleet) reboots() (n int) {
	for _, r := range f.machine.Journal() {
		if r.Stage == sim.StageEffect && r.Kind == sim.KindReboot {
			n++
		}
	}
	return n
}

// works holds that the machine is known with all of its operations, and that it is rebooted once when asked twice.
func (f *fleet) works(when string) {
	f.t.Helper()
	c, before := f.client(), f.reboots()
	request := "once-" + strings.ReplaceAll(when, " ", "-")
	one, other := rig.Reboot(f.t, c, "m-1", request, 0), rig.Reboot(f.t, c, "m-1", request, 0)
	if one.GetOperationId() != other.GetOperationId() {
		f.t.Errorf("%s: one request has the operations %s and %s", when, one.GetOperationId(), other.GetOperationId())
	}
	rig.Ended(f.t, c.Wait(one.GetOperationId(), soon), rig.Succeeded, "")
	if got := f.reboots() - before; got != 1 {
		f.t.Errorf("%s: %d reboots, want 1", when, got)
	}
	known := map[string]bool{}
	for _, op := range c.OperationsOf("m-1") {
		known[op.GetOperationId()] = true
	}
	f.operations = append(f.operations, one.GetOperationId())
	for _, id := range f.operations {
		if !known[id] {
			f.t.Errorf("%s: operation %s is lost", when, id)
		}
	}
}

// runs waits until so many live controllers have a version.
func (f *fleet) runs(version string, n int) {
	f.t.Helper()
	var out string
	testkit.Eventually(f.t, soon, func() bool {
		out = f.pods[0].ingot(f.token, "controllers")
		return strings.Count(out, version) == n
	}, "not %d controllers of version %s are live", n, version)
}
