//go:build clusters

package clusters

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/kubeadm"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// TestKubeadmTakesOurConfiguration: the file that we write is one that the real kubeadm accepts, in both versions.
func TestKubeadmTakesOurConfiguration(t *testing.T) {
	program := kubetest.Program(t, "kubeadm")
	hashes, err := pki.KeyHashes(kubetest.NewAuthority(t, "cluster").PEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"kubeadm.k8s.io/v1beta3", "kubeadm.k8s.io/v1beta4"} {
		text, err := kubeadm.JoinConfiguration(kubeadm.JoinRequest{
			APIServer: "10.0.0.1:6443", Token: "abc123.0123456789abcdef", NodeName: "m-1", CAHashes: hashes,
		}, version)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "join.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "config", "validate", "--config", file).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ok") {
			t.Errorf("%s: %v: %s", version, err, out)
		}
	}
}
