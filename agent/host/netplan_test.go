package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/network/networkd"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// netplanPackages are netplan and those of its libraries that few hosts have without it.
var netplanPackages = []string{"netplan.io", "libnetplan0", "libyaml-0-2"}

// TestOursGoesBeforeNetplans: the output of netplan for either renderer is there, but not in force while an interface
// is ours. That holds after netplan has written it again, too.
func TestOursGoesBeforeNetplans(t *testing.T) {
	if os.Getenv(hosttest.NetworkdVariable) == "" {
		t.Setenv("NETPLAN_ROOT", unpacked(t, netplanPackages...)) // here is a network to download it
	}
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	generate := func(renderer string) {
		root := os.Getenv("NETPLAN_ROOT")
		hosttest.WriteFile(t, "/etc/netplan/01-test.yaml",
			"network:\n  version: 2\n  renderer: "+renderer+"\n  ethernets:\n    here:\n      addresses: [10.9.0.9/24]\n")
		hosttest.Must(t, os.Chmod("/etc/netplan/01-test.yaml", 0o600))
		netplan := exec.CommandContext(t.Context(), filepath.Join(root, "usr/libexec/netplan/generate"))
		netplan.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu"))
		if out, err := netplan.CombinedOutput(); err != nil {
			t.Fatalf("netplan generate: %v\n%s", err, out)
		}
	}
	reload := func() {
		hosttest.Must(t, networkd.Manager{System: h.System}.Load(t.Context(), network.Load{}))
	}
	has := func(address string) bool {
		return strings.Contains(hosttest.Shell(t, "ip addr show here"), address+"/")
	}
	generate("networkd")
	reload()
	testkit.Eventually(t, rigTime, func() bool { return has("10.9.0.9") }, "netplan's address does not come")

	c := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	generate("networkd")
	reload()
	if s, err := h.Network(t.Context(), c, nil); err != nil || s.Diff != "" || has("10.9.0.9") {
		t.Errorf("beside netplan: %v\n%s", err, s.Diff)
	}
	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	if !has("10.9.0.9") || has("192.0.2.7") {
		t.Errorf("after the rollback:\n%s", hosttest.Shell(t, "ip addr show here"))
	}

	// Of two connections NetworkManager takes the one of the higher priority (nm-settings(5), autoconnect-priority).
	generate("NetworkManager")
	theirs := hosttest.ReadFile(t, "/run/NetworkManager/system-connections/netplan-here.nmconnection")
	if strings.Contains(theirs, "autoconnect-priority") {
		t.Errorf("netplan's connection has a priority of its own:\n%s", theirs)
	}
}
