//go:build helm

package helm

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// good are the values that must be given.
func good() object {
	return object{"image": object{"digest": digestOld}, "names": []string{"ingot.example.org"}}
}

// with returns good values with one changed, by its path.
func with(value any, path ...string) object {
	out := good()
	at := out
	for _, key := range path[:len(path)-1] {
		next, ok := at[key].(object)
		if !ok {
			next = object{}
			at[key] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
	return out
}

func render(t *testing.T, values object) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, marshal(t, values), 0o600); err != nil {
		t.Fatal(err)
	}
	return runHelm(t, helmHome(t), "template", "ingot", chart, "--namespace", namespace, "--values", file)
}

func mustRender(t *testing.T, values object) map[string]object {
	t.Helper()
	text, err := render(t, values)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return objectsOf(t, text)
}

// objectsOf reads documents of YAML by kind and name.
func objectsOf(t *testing.T, text string) map[string]object {
	t.Helper()
	out := map[string]object{}
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			out[kubetest.Text(o, "kind")+" "+kubetest.Text(o, "metadata", "name")] = o
		}
	}
}

// TestBadValuesAreRefused: each changes one value of those that are good.
func TestBadValuesAreRefused(t *testing.T) {
	if text, err := render(t, good()); err != nil {
		t.Fatalf("good values: %v\n%s", err, text)
	}
	cases := map[string]struct {
		values object
		names  string
	}{
		"no digest":              {with("", "image", "digest"), "image"},
		"a digest that is short": {with("sha256:abc", "image", "digest"), "/image/digest"},
		"a tag without leave":    {object{"image": object{"tag": "1.0"}, "names": []string{"a"}}, "/image"},
		"leave without a tag":    {object{"image": object{"allowTag": true}, "names": []string{"a"}}, "/image"},
		"a tag in the name":      {with("a b", "image", "repository"), "/image/repository"},
		"no names":               {with([]string{}, "names"), "/names"},
		"a name with a space":    {with([]string{"a b"}, "names"), "/names"},
		"no replica":             {with(0, "replicas"), "/replicas"},
		"a key that is unknown":  {with(2, "replica"), "replica"},
		"the URL in plain":       {with("postgres://u:p@h/d", "config", "database", "url"), "/config/database"},
		"another data directory": {with("/data", "config", "data_dir"), "/config/data_dir"},
		"another CA":             {with("", "config", "keys_dir"), "/config/keys_dir"},
		"no Secret of keys":      {with("", "keys", "secret"), "/keys/secret"},
		"no Secret of the URL":   {with("", "database", "secret"), "/database/secret"},
		"a bucket without a key": {with(object{"name": "images"}, "images", "bucket"), "/images"},
		"a claim of no size":     {with("much", "images", "claim", "size"), "/images/claim/size"},
		"a drain in words":       {with("15s", "drain", "timeoutSeconds"), "/drain/timeoutSeconds"},
		"a Service of no type":   {with("Balanced", "service", "type"), "/service/type"},
		"no disruption at all":   {with(0, "podDisruptionBudget", "maxUnavailable"), "/podDisruptionBudget"},
	}
	for name, c := range cases {
		text, err := render(t, c.values)
		if err == nil {
			t.Errorf("%s: rendered", name)
			continue
		}
		// Helm writes paths as JSON pointers, or with dots.
		if !strings.Contains(text, c.names) && !strings.Contains(text, strings.ReplaceAll(c.names[1:], "/", ".")) {
			t.Errorf("%s: the error does not name %s:\n%s", name, c.names, text)
		}
	}
}

// TestValuesReachTheirPlaces: what defaults do not show.
func TestValuesReachTheirPlaces(t *testing.T) {
	tagged := mustRender(t, object{"image": object{"allowTag": true, "tag": "1.0"}, "names": []string{"a"}})
	for _, name := range []string{"Deployment ingot", "Job ingot-migrations"} {
		if got := containerOf(t, tagged[name])["image"]; got != "ingot-controller:1.0" {
			t.Errorf("%s: image %v", name, got)
		}
	}
	v := with(object{"name": "images", "region": "eu-1"}, "images", "bucket")
	v["images"].(object)["bucketSecret"] = "bucket-key"
	v["images"].(object)["bucketCA"] = true
	v["rest"] = object{"enabled": false}
	v["config"] = object{"default_image": "ubuntu", "log": object{"level": "debug"}}
	v["database"] = object{"caSecret": ""}
	v["networkPolicy"] = object{"metrics": []object{{"namespaceSelector": object{}}}}
	v["serviceMonitor"] = object{"enabled": true}
	got := mustRender(t, v)
	config := configOf(t, got["ConfigMap ingot"])
	for path, want := range map[string]string{
		"images bucket name": "images", "images bucket credentials_file": "/run/ingot/bucket/credentials",
		"images bucket ca_file": "/run/ingot/bucket/ca.crt", "default_image": "ubuntu", "log level": "debug",
		"log format": "json", "listen rest": "", "database migrate": "false", "images_dir": "",
	} {
		if text := kubetest.Text(config, strings.Fields(path)...); text != want {
			t.Errorf("%s is %q, want %q", path, text, want)
		}
	}
	names := slices.Sorted(maps.Keys(got))
	for kind, want := range map[string]bool{"PersistentVolumeClaim ingot-images": false, "ServiceMonitor ingot": true} {
		if slices.Contains(names, kind) != want {
			t.Errorf("rendered %v, want %s: %v", names, kind, want)
		}
	}
	for _, v := range kubetest.In(got["Deployment ingot"], "spec", "template", "spec", "volumes").([]any) {
		if name := v.(object)["name"]; name == "database-ca" || name == "images" {
			t.Errorf("there is a volume %v", name)
		}
	}
}

func containerOf(t *testing.T, o object) object {
	t.Helper()
	list, ok := kubetest.In(o, "spec", "template", "spec", "containers").([]any)
	if !ok || len(list) != 1 {
		t.Fatalf("%s has not one container", kubetest.Text(o, "kind"))
	}
	return list[0].(object)
}

func configOf(t *testing.T, o object) object {
	t.Helper()
	var out object
	if err := yaml.Unmarshal([]byte(kubetest.Text(o, "data", "controller.yaml")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheManifestsAreThoseOfTheChart: `make kubernetes-manifests` writes them.
func TestTheManifestsAreThoseOfTheChart(t *testing.T) {
	kept, err := os.ReadFile(tree + "deploy/kubernetes/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	made, err := exec.CommandContext(t.Context(), tree+"scripts/kubernetes-manifests", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, made) {
		t.Error("deploy/kubernetes/controller.yaml is not what the chart renders; run: make kubernetes-manifests")
	}
}

// TestTheChartOfARelease: Helm reads the chart that `make release` packs, and renders it as the tree's, but for the
// version.
func TestTheChartOfARelease(t *testing.T) {
	out := t.TempDir()
	pack := exec.CommandContext(t.Context(), "go", "run", ".", "chart", "--version", "7.8.9-rc.1", "--out", out,
		"../../deploy/helm/ingot")
	pack.Dir = tree + "tools/release"
	if text, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	packed := filepath.Join(out, "ingot-7.8.9-rc.1.tgz")
	values := filepath.Join(out, "values.yaml")
	if err := os.WriteFile(values, marshal(t, good()), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := runHelm(t, helmHome(t), "template", "ingot", packed, "--namespace", namespace, "--values", values)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !strings.Contains(text, "helm.sh/chart: ingot-7.8.9-rc.1\n") {
		t.Errorf("the chart's label has another version:\n%.400s", text)
	}
	want, err := render(t, good())
	if err != nil {
		t.Fatal(err)
	}
	if own := strings.ReplaceAll(text, "7.8.9-rc.1", "0.1.0"); own != want {
		t.Errorf("Helm renders of the archive\n%s\nand of the tree\n%s", own, want)
	}
	if text, err := runHelm(t, helmHome(t), "lint", packed, "--values", values); err != nil {
		t.Errorf("helm lint: %v\n%s", err, text)
	}
}
