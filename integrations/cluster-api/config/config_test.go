// Package config tests what a release has of the provider beside its image.
package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"
)

// repository makes what a release has of this provider, and returns its folder.
func repository(t *testing.T, release string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "../components", dir, release).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "infrastructure-ingot", "v"+release)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The contract of Cluster API that the provider follows, and what its objects are labelled with.
const (
	contract = "v1beta2"
	group    = "cluster.x-k8s.io"
	label    = "infrastructure-ingot"
)

var headings = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`)

// TestMetadata is clusterctl's own type, without a field that it does not have. It has the contract of the resources,
// for each version of the change log.
func TestMetadata(t *testing.T) {
	var m clusterctlv1.Metadata
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(repository(t, "0.1.0"), "metadata.yaml")), &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != clusterctlv1.GroupVersion.String() || m.Kind != "Metadata" {
		t.Errorf("it is %s of %s", m.Kind, m.APIVersion)
	}
	releases := headings.FindAllStringSubmatch(string(read(t, "../../../CHANGELOG.md")), -1)
	if len(releases) == 0 {
		t.Fatal("the change log has no versions")
	}
	for _, r := range releases {
		series := m.GetReleaseSeriesForVersion(version.MustParseSemantic(r[1]))
		if series == nil || series.Contract != contract {
			t.Errorf("%s has the series %+v, want the contract %s", r[1], series, contract)
		}
	}
	if err := exec.CommandContext(t.Context(), "../components", t.TempDir(), "9.9.0").Run(); err == nil {
		t.Error("a version of no release series has components")
	}
}

var (
	// variable is what clusterctl replaces, in the form that it needs a value for.
	variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)\}`)
	given    = map[string]string{"INGOT_CLUSTER_API_IMAGE": "registry.example.org/ingot-cluster-api:1",
		"INGOT_SERVER": "h:1", "INGOT_TOKEN_B64": "dG9rZW4=", "INGOT_CA_B64": "Y2E="}
	unnamespaced = []string{"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
)

func componentsOf(t *testing.T) (out []*unstructured.Unstructured) {
	t.Helper()
	text := read(t, filepath.Join(repository(t, "0.1.0"), "infrastructure-components.yaml"))
	text = variable.ReplaceAllFunc(text, func(v []byte) []byte { return []byte(given[string(v[2:len(v)-1])]) })
	for dec := kubeyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			out = append(out, o)
		}
	}
}

// TestComponents holds the rules of clusterctl's contract: one namespace and all in it, the label of the provider on
// all, and the label of the contract on each resource.
func TestComponents(t *testing.T) {
	kinds := map[string]int{}
	for _, o := range componentsOf(t) {
		kinds[o.GetKind()]++
		name := o.GetKind() + " " + o.GetName()
		if got := o.GetLabels()[group+"/provider"]; got != label {
			t.Errorf("%s has the provider %q", name, got)
		}
		if (o.GetNamespace() == "ingot-system") == slices.Contains(unnamespaced, o.GetKind()) {
			t.Errorf("%s is in the namespace %q", name, o.GetNamespace())
		}
		if o.GetKind() == "CustomResourceDefinition" {
			versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
			if err != nil || o.GetLabels()[group+"/"+contract] != versions[0].(map[string]any)["name"] {
				t.Errorf("%s has the labels %v and the versions %v, %v", name, o.GetLabels(), versions, err)
			}
		}
	}
	for kind, want := range map[string]int{"Namespace": 1, "CustomResourceDefinition": 4, "Deployment": 1, "Secret": 1} {
		if kinds[kind] != want {
			t.Errorf("%s: there are %d, want %d", kind, kinds[kind], want)
		}
	}
}

// TestDeployment runs the program with flags that it has, as its image's user, and probes the port that it serves.
func TestDeployment(t *testing.T) {
	var d appsv1.Deployment
	var secret corev1.Secret
	into := map[string]any{"Deployment": &d, "Secret": &secret}
	for _, o := range componentsOf(t) {
		if to := into[o.GetKind()]; to != nil {
			raw, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(raw, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	flags := map[string]string{}
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if flags[name] = value; !slices.Contains(flagsOf(t), name) {
			t.Errorf("the program has no flag %s", name)
		}
	}
	_, elects := flags["leader-elect"]
	if c.Name != "manager" || c.Image != given["INGOT_CLUSTER_API_IMAGE"] || !elects || flags["namespace"] != "" ||
		flags["server"] != "h:1" || flags["leader-election-namespace"] != "$("+c.Env[0].Name+")" {
		t.Errorf("%v of %+v", flags, c)
	}
	port := c.Ports[0]
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet.Port.String() != port.Name || flags["health"] != ":"+strconv.Itoa(int(port.ContainerPort)) {
			t.Errorf("%+v probes port %+v of %s", p, port, flags["health"])
		}
	}
	at := c.VolumeMounts[0].MountPath
	for _, path := range []string{flags["ca-file"], flags["token-file"]} {
		if _, ok := secret.Data[strings.TrimPrefix(path, at+"/")]; !ok || spec.Volumes[0].Secret.SecretName != secret.Name {
			t.Errorf("%s is not in the Secret: %v", path, secret.Data)
		}
	}
	if *spec.SecurityContext.RunAsUser != 65532 || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("it runs with %+v, %+v", spec.SecurityContext, c.SecurityContext)
	}
}

var declared = regexp.MustCompile(`f\.\w+Var\(&[\w.]+, "([a-z-]+)"`)

// flagsOf reads the flags of the program in its source: to link it takes long.
func flagsOf(t *testing.T) (out []string) {
	t.Helper()
	for _, m := range declared.FindAllSubmatch(read(t, "../main.go"), -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// TestVariables are those that the page names.
func TestVariables(t *testing.T) {
	text := read(t, filepath.Join(repository(t, "0.1.0"), "infrastructure-components.yaml"))
	page := read(t, "../README.md")
	found := map[string]bool{}
	for _, v := range variable.FindAllSubmatch(text, -1) {
		found[string(v[1])] = true
		if !bytes.Contains(page, v[1]) {
			t.Errorf("README.md does not name %s", v[1])
		}
	}
	for name := range given {
		if !found[name] {
			t.Errorf("the components have no variable %s", name)
		}
	}
}
