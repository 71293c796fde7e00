//go:build helm

package helm

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// What `make test-helm` sets: Helm, and a controller of another version than the one of INGOT_TEST_PROGRAMS.
const (
	envHelm = "INGOT_TEST_HELM"
	envNext = "INGOT_TEST_NEXT_CONTROLLER"
)

const (
	tree      = "../../"
	chart     = tree + "deploy/helm/ingot"
	first     = "testdata/ingot-0.1.0.tgz"
	namespace = "ingot"
	soon      = 3 * time.Minute
)

func TestMain(m *testing.M) { rig.Main(m) }

type object = kubetest.Object

func named(t testing.TB, env string) string {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Fatalf("%s is not set: run `make test-helm`", env)
	}
	return os.Getenv(env)
}

// The images that there are, by the digest that values name.
var (
	digestOld = "sha256:" + strings.Repeat("a", 64)
	digestNew = "sha256:" + strings.Repeat("b", 64)
	digestNil = "sha256:" + strings.Repeat("0", 64) // of the manifests in the tree
)

// programOf returns the controller of an image.
func programOf(t testing.TB, image string) string {
	t.Helper()
	switch _, digest, _ := strings.Cut(image, "@"); digest {
	case digestOld, digestNil:
		return harness.Build(t).Controller
	case digestNew:
		return named(t, envNext)
	}
	t.Fatalf("there is no image %s", image)
	return ""
}

// place is a cluster with a namespace, and the machine that plays its nodes.
type place struct {
	*kubetest.Server
	t        *testing.T
	dir      string
	network  string // the first three bytes of the addresses of pods
	database *database
	env      []string
	token    string // of an admin
	pods     []*pod
	made     int // pods, ever
	serving  int // those with an address, ever
}

func newPlace(t *testing.T) *place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("containers need root: mounts, and their own user")
	}
	p := &place{Server: kubetest.Start(t), t: t, dir: testkit.TempDir(t),
		network: fmt.Sprintf("127.%d.%d.", 1+os.Getpid()/250%250, 1+os.Getpid()%250)}
	cert, key := p.CA.Client(t, "admin", "system:masters")
	b64 := base64.StdEncoding.EncodeToString
	config := p.write("kubeconfig", marshal(t, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []object{{"name": "x", "cluster": object{"server": p.URL, "certificate-authority-data": b64(p.CA.PEM)}}},
		"users": []object{{"name": "x", "user": object{"client-certificate-data": b64(cert),
			"client-key-data": b64(key)}}},
		"contexts": []object{{"name": "x", "context": object{"cluster": "x", "user": "x"}}},
	}))
	p.env = append(helmHome(t), "KUBECONFIG="+config, strings.Join([]string{"PATH=" + filepath.Dir(named(t, envHelm)),
		os.Getenv(kubetest.Env), harness.Build(t).Dir(), os.Getenv("PATH")}, ":"))
	// Commands of the documentation name files of the tree.
	deploy, err := filepath.Abs(tree + "deploy")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(deploy, filepath.Join(p.dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	p.database = startDatabase(t, p.network+"9")
	p.token = p.keys()
	app, ca := p.database.secrets()
	p.secret("ingot-db-app", app)
	p.secret("ingot-db-ca", ca)
	return p
}

// documented returns the command of the documentation that begins so, and more arguments.
func (p *place) documented(beginning string, more ...string) []string {
	p.t.Helper()
	page, err := os.ReadFile(tree + "docs/howto/kubernetes.md")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, beginning+" ") {
			return append(strings.Fields(line), more...)
		}
	}
	p.t.Fatalf("the documentation has no command %s", beginning)
	return nil
}

// helmHome keeps Helm out of the home of who runs the test.
func helmHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+os.DevNull)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// write writes a file that lives as long as the place, and returns its path.
func (p *place) write(name string, text []byte) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// command is one that is typed beside the tree.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), "/usr/bin/env", args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// must runs a command to its end, and returns what it prints.
func (p *place) must(args ...string) string {
	p.t.Helper()
	var out, said bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out.String(), said.String())
	}
	return out.String()
}

func runHelm(t testing.TB, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), named(t, envHelm), args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// jobPath is where the Job is that migrates.
const jobPath = "/apis/batch/v1/namespaces/" + namespace + "/jobs/ingot-migrations"

// withHook runs Helm while the test does the part of the cluster for the hook's Job. before is called while Helm waits
// for it.
func (p *place) withHook(before func(), args []string) {
	p.t.Helper()
	var out bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	testkit.Eventually(p.t, soon, func() bool { return !p.gone(jobPath) }, "%s makes no Job", strings.Join(args, " "))
	before()
	p.migrate()
	if err := cmd.Wait(); err != nil {
		p.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
}

// migrate runs the Job's pod as a process and reports that it is complete.
func (p *place) migrate() {
	p.t.Helper()
	job := p.Admin.Get(jobPath)
	spec, _ := kubetest.In(job, "spec", "template", "spec").(object)
	p.completed(p.newPod("migrations", "", spec, kubetest.In(job, "spec", "template", "metadata")))
	now := time.Now().UTC().Format(time.RFC3339)
	done := func(kind string) object {
		return object{"type": kind, "status": "True", "lastTransitionTime": now, "reason": "CompletionsReached"}
	}
	p.Admin.Merge(jobPath+"/status", object{"status": object{
		"startTime": now, "completionTime": now, "succeeded": 1,
		"conditions": []object{done("SuccessCriteriaMet"), done("Complete")},
	}})
}

// completed runs a pod to its end, which is a success, and removes it.
func (p *place) completed(x *pod) {
	p.t.Helper()
	x.start(nil)
	select {
	case <-x.done:
	case <-time.After(soon):
		p.t.Fatalf("the Job does not end:\n%s", x.out.String())
	}
	if x.err != nil {
		p.t.Fatalf("the Job failed: %v\n%s", x.err, x.out.String())
	}
	x.remove()
}

// secret makes a Secret.
func (p *place) secret(name string, files map[string][]byte) {
	p.t.Helper()
	data := object{}
	for key, text := range files {
		data[key] = base64.StdEncoding.EncodeToString(text)
	}
	p.Admin.Create("/api/v1/namespaces/"+namespace+"/secrets", object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "data": data,
	})
}

// keys types what the documentation has for what replicas share, and returns the token that it prints.
func (p *place) keys() (token string) {
	p.t.Helper()
	p.must(p.documented("ingot-controller keys")...)
	token = strings.TrimSpace(p.must(p.documented("ingot-controller token")...))
	for _, command := range []string{"kubectl create namespace", "kubectl label namespace", "kubectl -n ingot create"} {
		p.must(p.documented(command)...)
	}
	return token
}

func (p *place) deployment() object {
	p.t.Helper()
	return p.Admin.Get("/apis/apps/v1/namespaces/" + namespace + "/deployments/ingot")
}

// rollout does what a Deployment does with maxSurge 1 and maxUnavailable 0: a new pod, and when it is ready an old one
// ends.
func (p *place) rollout() {
	p.t.Helper()
	d := p.deployment()
	for _, key := range []string{"maxSurge", "maxUnavailable"} {
		want := map[string]string{"maxSurge": "1", "maxUnavailable": "0"}[key]
		if got := kubetest.Text(d, "spec", "strategy", "rollingUpdate", key); got != want {
			p.t.Fatalf("%s is %s: the test does it by %s", key, got, want)
		}
	}
	spec, _ := kubetest.In(d, "spec", "template", "spec").(object)
	old := slices.Clone(p.pods)
	replicas, _ := kubetest.In(d, "spec", "replicas").(float64)
	for range int(replicas) {
		x := p.newPod("ingot-"+strconv.Itoa(p.made), p.addresses()[p.serving], spec,
			kubetest.In(d, "spec", "template", "metadata"))
		p.serving++
		x.start(x.listen())
		x.ready()
		p.pods = append(p.pods, x)
		if len(old) > 0 {
			old[0].stop()
			old, p.pods = old[1:], p.pods[1:]
		}
	}
}

// addresses are of all pods that there will be.
func (p *place) addresses() (out []string) {
	for i := range 8 {
		out = append(out, p.network+strconv.Itoa(11+i))
	}
	return out
}

// gone reports whether an object is not there.
func (p *place) gone(path string) bool {
	p.t.Helper()
	code, _ := p.Admin.Try(http.MethodGet, path, "", nil)
	return code == http.StatusNotFound
}
