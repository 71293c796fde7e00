package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

// NetworkSupport: a simulated machine has every interface that it is asked to have.
func (m *Machine) NetworkSupport(context.Context, network.Config) error { return nil }

// Network compares the configuration that the running system holds with another one.
func (m *Machine) Network(ctx context.Context, c network.Config, _ *network.SavedNetwork) (network.State, error) {
	st, err := m.running(ctx)
	if err != nil {
		return network.State{}, err
	}
	diff := textdiff.Unified("committed/interfaces", "simulated/interfaces", networkLines(&c), networkLines(st.Network))
	sum := sha256.Sum256([]byte(strings.Join(networkLines(st.Network), "\n")))
	return network.State{Diff: diff, Digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// networkLines shows a configuration, one field a line.
func networkLines(c *network.Config) []string {
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
func (m *Machine) SaveNetwork(ctx context.Context, _ network.Config) (network.SavedNetwork, error) {
	st, err := m.running(ctx)
	return network.SavedNetwork{BootID: st.BootID, Applied: st.Network}, err
}

// ApplyNetwork replaces it.
func (m *Machine) ApplyNetwork(ctx context.Context, e effect.Cause, c network.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return m.setNetwork(ctx, e, &c)
}

// RestoreNetwork goes back to what was saved.
func (m *Machine) RestoreNetwork(ctx context.Context, e effect.Cause, s network.SavedNetwork) error {
	return m.setNetwork(ctx, e, s.Applied)
}

func (m *Machine) setNetwork(ctx context.Context, e effect.Cause, c *network.Config) error {
	want := strings.Join(networkLines(c), "\n")
	_, err := m.cause(ctx, change{Kind: KindNetwork, Effect: e, Network: c, Detail: networkDetail(c)},
		nothingIf(func(st *MachineState) bool { return strings.Join(networkLines(st.Network), "\n") == want }))
	return err
}

func networkDetail(c *network.Config) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%d interfaces", len(c.Interfaces))
}

// NetworkSource is no address: nothing of a simulated machine is on the way to its controller.
func (m *Machine) NetworkSource(context.Context, network.Config, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, nil
}
