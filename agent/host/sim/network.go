package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ingot-metal/ingot/agent/host"
)

// NetworkSupport: a simulated machine has every interface that it is asked to have.
func (m *Machine) NetworkSupport(context.Context, host.NetworkConfig) error { return nil }

// Network compares the configuration that the running system holds with another one.
func (m *Machine) Network(ctx context.Context, c host.NetworkConfig, _ *host.SavedNetwork) (host.NetworkState, error) {
	st, err := m.running(ctx)
	if err != nil {
		return host.NetworkState{}, err
	}
	diff := host.UnifiedDiff("committed/interfaces", "simulated/interfaces", networkLines(&c), networkLines(st.Network))
	sum := sha256.Sum256([]byte(strings.Join(networkLines(st.Network), "\n")))
	return host.NetworkState{Diff: diff, Digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// networkLines shows a configuration, one field a line.
func networkLines(c *host.NetworkConfig) []string {
	if c == nil || len(c.Interfaces) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(c.Interfaces, "", " ")
	if err != nil {
		// Only strings, numbers, bools and addresses, which always encode.
		panic(fmt.Sprintf("encode simulated network: %v", err))
	}
	return strings.Split(string(b), "\n")
}

// SaveNetwork reads the configuration that the running system holds.
func (m *Machine) SaveNetwork(ctx context.Context, _ host.NetworkConfig) (host.SavedNetwork, error) {
	st, err := m.running(ctx)
	return host.SavedNetwork{BootID: st.BootID, Applied: st.Network}, err
}

// ApplyNetwork replaces it.
func (m *Machine) ApplyNetwork(ctx context.Context, e host.Effect, c host.NetworkConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return m.setNetwork(ctx, e, &c)
}

// RestoreNetwork goes back to what was saved.
func (m *Machine) RestoreNetwork(ctx context.Context, e host.Effect, s host.SavedNetwork) error {
	return m.setNetwork(ctx, e, s.Applied)
}

func (m *Machine) setNetwork(ctx context.Context, e host.Effect, c *host.NetworkConfig) error {
	want := strings.Join(networkLines(c), "\n")
	_, err := m.cause(ctx, change{Kind: KindNetwork, Effect: e, Network: c, Detail: networkDetail(c)},
		nothingIf(func(st *MachineState) bool { return strings.Join(networkLines(st.Network), "\n") == want }))
	return err
}

func networkDetail(c *host.NetworkConfig) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%d interfaces", len(c.Interfaces))
}

// NetworkSource is no address: nothing of a simulated machine is on the way to its controller.
func (m *Machine) NetworkSource(context.Context, host.NetworkConfig, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, nil
}
