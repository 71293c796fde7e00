//go:build clusters

package clusters

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/kubeadm"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/internal/dnsname"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// judge asks the real kubeadm of a configuration; "" is its consent.
func judge(t *testing.T, r kubeadm.JoinRequest, version string) string {
	t.Helper()
	text, err := kubeadm.JoinConfiguration(r, version)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "join.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubetest.Program(t, "kubeadm"), "config", "validate", "--config",
		file).CombinedOutput()
	if err == nil && strings.Contains(string(out), "ok") {
		return ""
	}
	return fmt.Sprintf("%v: %s", err, out)
}

// TestNamesAndTokensAreKubeadms: kubeadm accepts every name of a node that is a machine's id, and no other one. It
// accepts the tokens, pins and addresses of a controller.
func TestNamesAndTokensAreKubeadms(t *testing.T) {
	t.Parallel()
	hashes, err := pki.KeyHashes(kubetest.NewAuthority(t, "cluster").PEM)
	if err != nil {
		t.Fatal(err)
	}
	const token = "abc123.0123456789abcdef"
	for _, name := range []string{"m-1", "srv7.example", "7", "a", strings.Repeat("a", 63), "r1.c2.n3", "xn--bcher-kva",
		"srv7.", ".srv7", "a..b", "-a", "a-", "a.-b", "a_b", "a b", "a/b", "ä", "m-1\n"} {
		refusal := judge(t, kubeadm.JoinRequest{APIServer: "10.0.0.1:6443", Token: token, NodeName: name, CAHashes: hashes},
			"kubeadm.k8s.io/v1beta4")
		// kubeadm removes space around a name; a machine's id has none.
		if ours := dnsname.MachineID(name); ours != (refusal == "") && strings.TrimSpace(name) == name {
			t.Errorf("the name %q: is an id: %t; kubeadm: %s", name, ours, refusal)
		}
	}
	box, err := secret.New(make([]byte, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	for i, server := range []string{"10.0.0.1:6443", "api.example.com:443", "[2001:db8::1]:6443"} {
		id, word := box.JoinToken(fmt.Sprint("operation-", i))
		if refusal := judge(
			t,
			kubeadm.JoinRequest{APIServer: server, Token: id + "." + word, NodeName: "m-1", CAHashes: hashes},
			"kubeadm.k8s.io/v1beta4",
		); refusal != "" {
			t.Errorf("%s with token %s: %s", server, id, refusal)
		}
	}
	if judge(
		t,
		kubeadm.JoinRequest{APIServer: "api", Token: token, NodeName: "m", CAHashes: hashes},
		"kubeadm.k8s.io/v1beta4",
	) == "" {
		t.Error("kubeadm takes an address without a port: it judges less than this test believes")
	}
}

// source is the folder of a version of Kubernetes' own code.
func source(t *testing.T, version string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	cmd.Dir = "../kube"
	out, err := cmd.Output()
	var m struct{ Dir string }
	if err != nil || json.Unmarshal(out, &m) != nil || m.Dir == "" {
		t.Fatalf("get the source of Kubernetes %s: %v: %s", version, err, out)
	}
	return m.Dir
}

// TestTheConfigurationThatKubeadmTakes: the version of the configuration is one that kubeadm's own code names as
// neither experimental nor removed (cmd/kubeadm/app/util/config/common.go, validateSupportedVersion).
func TestTheConfigurationThatKubeadmTakes(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?s)(oldKnown|experimental)APIVersions := map\[string\]\w+\{(.*?)\n?\t?\}\n`)
	for _, release := range []string{"v1.30.14", "v1.31.14", "v1.33.13"} {
		text, err := os.ReadFile(filepath.Join(source(t, release), "cmd/kubeadm/app/util/config/common.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := list.FindAllStringSubmatch(string(text), -1)
		if len(found) != 2 {
			t.Fatalf("%s: %d lists of versions: its code has another form", release, len(found))
		}
		written := writtenFor(t, release)
		for _, refused := range found {
			if strings.Contains(refused[2], `"`+written+`"`) {
				t.Errorf("kubeadm %s gets %s, which it calls %s", release, written, refused[1])
			}
		}
	}
}

// writtenFor returns the apiVersion of the configuration that a kubeadm of the release is run with.
func writtenFor(t *testing.T, release string) string {
	t.Helper()
	root := t.TempDir()
	program := filepath.Join(root, "kubeadm")
	put(
		t,
		program,
		fmt.Sprintf("#!/bin/sh\n[ \"$1\" = version ] && echo %s && exit\ncp \"$3\" %s/seen\n", release, root),
		0o700,
	)
	j := &kubeadm.Joiner{System: system.NewSystem(root, false, slog.Default()), Program: program}
	err := j.Join(
		t.Context(),
		effect.Cause{CommandID: "c"},
		kubeadm.JoinRequest{APIServer: "api:6443", Token: "t", NodeName: "m",
			CAHashes: []string{"sha256:00"}, Dir: filepath.Join(root, "join")},
		func(string, []byte) {},
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "apiVersion: ")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}

// TestTheFilesThatKubeadmLeaves: membership is read from where kubeadm's own constants put it.
func TestTheFilesThatKubeadmLeaves(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(source(t, "v1.33.13"), "cmd/kubeadm/app/constants/constants.go"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) string {
		m := regexp.MustCompile(`\t` + name + ` += "(.*)"`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("kubeadm has no constant %s", name)
		}
		return string(m[1])
	}
	for _, name := range []string{"KubeletKubeConfigFileName", "KubeletBootstrapKubeConfigFileName", "CACertName"} {
		root := t.TempDir()
		dir := filepath.Join(root, of("KubernetesDir"))
		if name == "CACertName" {
			dir = filepath.Join(dir, "pki")
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, of(name)), "clusters: [{cluster: {server: 'https://api:6443'}}]\n", 0o600)
		j := &kubeadm.Joiner{System: system.NewSystem(root, false, slog.Default())}
		m, err := j.Membership(t.Context())
		if joined := name == "KubeletKubeConfigFileName"; err != nil || m.Joined != joined || m.Begun == joined {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}
