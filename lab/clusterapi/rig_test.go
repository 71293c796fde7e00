//go:build clusterapi

package clusterapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/process"
)

// What `make test-cluster-api` sets: the provider's program, the core controllers' program, and where the module of
// Cluster API is.
const (
	envProvider = "INGOT_TEST_CLUSTER_API"
	envCore     = "INGOT_TEST_CLUSTER_API_CORE"
	envModule   = "INGOT_TEST_CLUSTER_API_MODULE"
)

const (
	root  = "../.."
	ours  = root + "/integrations/cluster-api"
	claim = "capi.ingot.dev/claim"
	soon  = 4 * time.Minute
)

func TestMain(m *testing.M) { rig.Main(m) }

type object = kubetest.Object

// management is a management cluster with Cluster API's core, beside a fleet.
type management struct {
	*kubetest.Server
	t *testing.T
	c *harness.Cluster
	// adminConfig is a kubeconfig.
	adminConfig string
	dir         string
	core        *process.Process
	// account is what the provider logs in with, on both sides.
	account *account
}

type account struct{ config, token string }

func newManagement(t *testing.T) *management {
	t.Helper()
	g := &management{Server: kubetest.Start(t), t: t, c: harness.New(t, harness.Options{}),
		dir: t.TempDir(), account: &account{}}
	cert, key := g.CA.Client(t, "admin", "system:masters")
	g.adminConfig = g.kubeconfig("admin", object{"client-certificate-data": base64.StdEncoding.EncodeToString(cert),
		"client-key-data": base64.StdEncoding.EncodeToString(key)})
	crds, err := filepath.Glob(filepath.Join(named(t, envModule), "core/config/crd/bases/*.yaml"))
	if err != nil || len(crds) < 5 {
		t.Fatalf("found %d resources of Cluster API: %v", len(crds), err)
	}
	g.kubectl("apply", "--server-side", "-f", filepath.Join(named(t, envModule), "core/config/crd/bases"))
	for _, crd := range crds {
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(crd), ".yaml"), "_")
		g.established(plural + "." + group)
	}
	g.startCore()
	return g
}

func named(t testing.TB, env string) string {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Fatalf("%s is not set: run `make test-cluster-api`", env)
	}
	return os.Getenv(env)
}

func (g *management) established(crd string) {
	g.t.Helper()
	testkit.Eventually(g.t, soon, func() bool {
		o := g.Admin.Get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + crd)
		return condition(o, "Established")["status"] == "True"
	}, "%s is not served", crd)
}

// kubeconfig writes a configuration for a user.
func (g *management) kubeconfig(name string, user object) string {
	g.t.Helper()
	raw, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []object{{"name": "x", "cluster": object{"server": g.URL,
			"certificate-authority-data": base64.StdEncoding.EncodeToString(g.CA.PEM)}}},
		"users":    []object{{"name": "x", "user": user}},
		"contexts": []object{{"name": "x", "context": object{"cluster": "x", "user": "x"}}},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return g.file(name, raw)
}

// file writes a file that lives as long as the management cluster.
func (g *management) file(name string, text []byte) string {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// run starts a program that ends with the test at the latest.
func (g *management) run(env []string, path string, args ...string) *process.Process {
	g.t.Helper()
	out := &testkit.Buffer{}
	p, err := process.Start(process.Config{Path: path, Args: args, Env: env, Output: out})
	if err != nil {
		g.t.Fatal(err)
	}
	t := g.t
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			text := out.String()
			t.Logf("%s said at its end:\n%s", filepath.Base(path), text[max(0, len(text)-6000):])
		}
	})
	return p
}

// startCore runs Cluster API's core controllers. Their webhooks are served and not registered.
func (g *management) startCore() {
	g.t.Helper()
	certs := g.t.TempDir()
	cert, key := g.CA.Server(g.t, "webhooks")
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(certs, name), text, 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
	g.core = g.run([]string{"KUBECONFIG=" + g.adminConfig, "POD_NAMESPACE=default", "POD_NAME=core", "POD_UID=core"},
		named(g.t, envCore), "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics", "--health-addr=127.0.0.1:0",
		"--webhook-port="+testkit.FreePort(g.t), "--webhook-cert-dir="+certs,
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields")
}

// provider starts the provider, under the account that its own manifest makes and with a token that may operate.
func (g *management) provider() *process.Process {
	g.t.Helper()
	if g.account.config == "" {
		code, token := g.c.Ingot("token", "create", "the-provider", "--scope", "operate", "--bare")
		if code != 0 {
			g.t.Fatal(token)
		}
		g.account.token = g.file("token", []byte(token))
		g.account.config = g.kubeconfig("provider", object{"token": g.Token("ingot-system", "ingot-cluster-api")})
	}
	return g.run([]string{"KUBECONFIG=" + g.account.config}, named(g.t, envProvider), "--server", g.c.Front.Address(),
		"--ca-file", filepath.Join(g.c.Data, "ca.pem"), "--token-file", g.account.token, "--poll", "1s")
}

// install makes the provider's resources and account.
func (g *management) install() {
	g.t.Helper()
	g.kubectl("apply", "-f", ours+"/config/crd", "-f", ours+"/config/rbac.yaml")
	for _, plural := range []string{"ingotclusters", "ingotclustertemplates", "ingotmachines", "ingotmachinetemplates"} {
		g.established(plural + ".infrastructure.cluster.x-k8s.io")
	}
}

const (
	coreAPI  = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/"
	infraAPI = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/default/"
)

func infra(name string) string { return infraAPI + "ingotmachines/" + name }
func core(name string) string  { return coreAPI + "machines/" + name }

// cluster makes a Cluster and its IngotCluster of a pool of machines, and waits until the core has taken it in.
func (g *management) cluster(name string) {
	g.t.Helper()
	for _, o := range exampleOf(g.t) {
		if kind := kubetest.Text(o, "kind"); kind == "Cluster" || kind == "IngotCluster" {
			g.create(renamed(o, name))
		}
	}
	testkit.Eventually(g.t, soon, func() bool {
		select {
		case <-g.core.Gone():
			g.t.Fatalf("the core controllers have ended: %v", g.core.Err())
		default:
		}
		o := g.Admin.Get(coreAPI + "clusters/" + name)
		return kubetest.Text(o, "status", "initialization", "infrastructureProvisioned") == "true"
	}, "the core does not take the infrastructure of %s for provisioned", name)
}

// machine makes a Machine of a cluster with an IngotMachine, and its bootstrap data as a bootstrap provider would.
func (g *management) machine(cluster, name string, change func(machine, infra, secret object)) {
	g.t.Helper()
	parts := map[string]object{}
	for _, o := range exampleOf(g.t) {
		parts[kubetest.Text(o, "kind")] = renamed(o, cluster, name)
	}
	if change != nil {
		change(parts["Machine"], parts["IngotMachine"], parts["Secret"])
	}
	for _, kind := range []string{"Secret", "IngotMachine", "Machine"} {
		g.create(parts[kind])
	}
}

// exampleOf reads the example that users are given.
func exampleOf(t testing.TB) (out []object) {
	t.Helper()
	f, err := os.Open(ours + "/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read to its end
	for dec := yaml.NewDecoder(f); ; {
		var o object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
}

// renamed is an object of the example under other names: of the cluster, and of the machine where one is given.
func renamed(o object, names ...string) object {
	var in func(v any) any
	in = func(v any) any {
		switch v := v.(type) {
		case object:
			for k := range v {
				v[k] = in(v[k])
			}
		case string:
			if len(names) > 1 {
				v = strings.ReplaceAll(v, "edge-1", names[1])
			}
			if v == "edge" || v == "labels.pool=edge" {
				v = strings.ReplaceAll(v, "edge", names[0])
			}
			return v
		}
		return v
	}
	return in(o).(object)
}

var plurals = map[string]string{
	"Secret": "/api/v1/namespaces/default/secrets", "Cluster": coreAPI + "clusters", "Machine": coreAPI + "machines",
	"IngotCluster": infraAPI + "ingotclusters", "IngotMachine": infraAPI + "ingotmachines",
}

func (g *management) create(o object) {
	g.t.Helper()
	g.Admin.Create(plurals[kubetest.Text(o, "kind")], o)
}

// pool connects simulated machines with a label.
func (g *management) pool(name string, n int, o harness.MachineOptions) map[string]*harness.Machine {
	g.t.Helper()
	out := map[string]*harness.Machine{}
	for i := range n {
		o.ID = fmt.Sprintf("%s-m%d", name, i)
		out[o.ID] = g.c.NewMachine(g.t, o)
	}
	for id, m := range out {
		m.WaitConnected()
		g.label(id, "pool", name)
		g.label(id, label.Offered, label.ClusterAPI)
	}
	return out
}

func (g *management) label(id, key, value string) {
	g.t.Helper()
	spec := "--label=" + key + "=" + value
	if value == "" {
		spec = "--label=" + key + "-"
	}
	if code, out := g.c.Ingot("machine", "update", id, spec); code != 0 {
		g.t.Fatalf("label %s: %s", id, out)
	}
}

// unlabel removes a machine's claim, as a user might.
func (g *management) unlabel(id string) {
	g.t.Helper()
	harness.Must(g.t, g.c.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{
		Machine: &baremetalv1.Machine{MachineId: id}, UpdateMask: maskOf("labels." + claim)})
}

// provisioned waits until a machine is, and returns its id in the fleet.
func (g *management) provisioned(name string) string {
	g.t.Helper()
	g.eventually(name, "provisioned", func(o object) bool {
		return kubetest.Text(o, "status", "initialization", "provisioned") == "true"
	})
	return kubetest.Text(g.Admin.Get(infra(name)), "status", "machineID")
}

// ready waits until the condition Ready has a reason.
func (g *management) ready(name, reason string) {
	g.t.Helper()
	g.eventually(name, reason, func(o object) bool { return condition(o, "Ready")["reason"] == reason })
}

func (g *management) eventually(name, what string, holds func(object) bool) {
	g.t.Helper()
	testkit.Eventually(g.t, soon, func() bool { return holds(g.Admin.Get(infra(name))) },
		"%s is not %s: %v", name, what, lazy(func() string { return fmt.Sprint(g.Admin.Get(infra(name))) }))
}

type lazy func() string

func (l lazy) String() string { return l() }

func condition(o object, kind string) object {
	list, _ := kubetest.In(o, "status", "conditions").([]any)
	for _, c := range list {
		if c.(object)["type"] == kind {
			return c.(object)
		}
	}
	return nil
}

// deleted deletes a Machine, and waits until the core has removed everything of it.
func (g *management) deleted(name string) {
	g.t.Helper()
	g.remove(name)
	testkit.Eventually(g.t, soon, func() bool {
		return g.Admin.Get(core(name)) == nil && g.Admin.Get(infra(name)) == nil
	}, "%s is not deleted: %v", name, lazy(func() string {
		return fmt.Sprint(g.Admin.Get(core(name)), g.Admin.Get(infra(name)))
	}))
}

func (g *management) remove(name string) {
	g.t.Helper()
	if code, out := g.Admin.Try(http.MethodDelete, core(name), "", nil); code != http.StatusOK {
		g.t.Fatalf("delete %s: %d %v", name, code, out)
	}
}

// effects counts what happened to a simulated machine.
func effects(m *harness.Machine, kind sim.Kind) (n int) {
	for _, r := range m.Journal() {
		if r.Stage == sim.StageEffect && r.Kind == kind {
			n++
		}
	}
	return n
}

func (g *management) claimOf(id string) string { return g.c.Machine(id).GetLabels()[claim] }
