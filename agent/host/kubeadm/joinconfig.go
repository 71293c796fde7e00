package kubeadm

import (
	"context"
	"fmt"
	"os/exec"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/version"
)

// The versions of kubeadm's configuration. v1beta4 came with 1.31, and v1beta3 is going.
const (
	v1beta3 = "kubeadm.k8s.io/v1beta3"
	v1beta4 = "kubeadm.k8s.io/v1beta4"
)

// joinConfiguration is kubeadm's, as far as it is used; both versions agree on it.
type joinConfiguration struct {
	APIVersion       string           `yaml:"apiVersion"`
	Kind             string           `yaml:"kind"`
	Discovery        discovery        `yaml:"discovery"`
	NodeRegistration nodeRegistration `yaml:"nodeRegistration"`
}

type discovery struct {
	BootstrapToken bootstrapToken `yaml:"bootstrapToken"`
}

type bootstrapToken struct {
	Token             string   `yaml:"token"`
	APIServerEndpoint string   `yaml:"apiServerEndpoint"`
	CACertHashes      []string `yaml:"caCertHashes"`
}

type nodeRegistration struct {
	Name string `yaml:"name"`
}

// JoinConfiguration makes the file that kubeadm reads. Without a pinned CA there is none: any server that answers at
// the address would own the machine.
func JoinConfiguration(r JoinRequest, apiVersion string) ([]byte, error) {
	if len(r.CAHashes) == 0 {
		return nil, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "no CA of the cluster is pinned")
	}
	out, err := yaml.Marshal(joinConfiguration{
		APIVersion: apiVersion, Kind: "JoinConfiguration",
		Discovery: discovery{BootstrapToken: bootstrapToken{
			Token: r.Token, APIServerEndpoint: r.APIServer, CACertHashes: r.CAHashes,
		}},
		NodeRegistration: nodeRegistration{Name: r.NodeName},
	})
	if err != nil {
		return nil, fmt.Errorf("write JoinConfiguration: %w", err)
	}
	return out, nil
}

// kubeadmTakes asks kubeadm which version it is, and so which configuration it takes.
func kubeadmTakes(ctx context.Context, kubeadm string) string {
	out, err := exec.CommandContext(ctx, kubeadm, "version", "-o", "short").Output()
	if err != nil {
		return v1beta4 // whatever is wrong shows when it is run
	}
	return configOf(string(out))
}

// configOf returns the configuration's version for kubeadm's own, such as "v1.33.2".
func configOf(text string) string {
	if v, ok := version.Parse(text); ok && !v.AtLeast(1, 31) {
		return v1beta3
	}
	return v1beta4
}
