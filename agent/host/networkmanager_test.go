package host

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/network/networkmanager"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// networkManagerPackages are NetworkManager and those of its libraries that few hosts have without it.
var networkManagerPackages = []string{
	"network-manager",
	"libbluetooth3",
	"libmm-glib0",
	"libndp0",
	"libnewt0.52",
	"libnm0",
	"libteamdctl0",
}

// ownerConnection is as nmcli writes it.
const ownerConnection = `[connection]
id=office
uuid=3e8e2b1c-4a5e-4b0e-9c39-0e6d2f0a1b2c
type=ethernet
interface-name=here

[ethernet]

[ipv4]
address1=10.9.0.1/24,10.9.0.2
dns=10.9.0.2;
method=manual

[ipv6]
addr-gen-mode=default
method=link-local
`

// networkManagerSystem is one with Debian's NetworkManager, as the package has it. There is no udev, for which
// NetworkManager does not wait where /sys is read-only.
func networkManagerSystem(t *testing.T) {
	t.Helper()
	root := unpacked(t, networkManagerPackages...)
	ownFiles(t, smallDisk(t))
	for _, dir := range []string{"bin", "sbin", "lib"} {
		hosttest.Must(t, unix.Mount("overlay", "/usr/"+dir, "overlay", unix.MS_RDONLY,
			"lowerdir="+filepath.Join(root, "usr", dir)+":/usr/"+dir))
	}
	startBus(t)
	hosttest.WriteFile(t, ownerFile, ownerConnection)
	hosttest.Must(t, os.Chmod(ownerFile, 0o600))
	startNetworkManager(t)
}

const ownerFile = "/etc/NetworkManager/system-connections/office.nmconnection"

func startNetworkManager(t *testing.T) {
	t.Helper()
	hosttest.Must(t, os.MkdirAll("/var/lib/NetworkManager", 0o755))
	hosttest.Must(t, unix.Mount("tmpfs", "/var/lib/NetworkManager", "tmpfs", 0, "mode=0755"))
	hosttest.WriteFile(t, "/etc/NetworkManager/NetworkManager.conf",
		"[main]\nplugins=keyfile\nno-auto-default=*\nauth-polkit=false\n[logging]\nlevel=INFO\n")
	daemon(t, "/usr/sbin/NetworkManager", "--no-daemon")
	m := networkmanager.Manager{System: New(Config{}).System}
	testkit.Eventually(t, rigTime, func() bool {
		state, err := m.State(t.Context())
		return err == nil && state == network.Running
	}, "NetworkManager is not on the bus")
}

func withNetworkManager(t *testing.T) bool {
	t.Helper()
	unpacked(t, networkManagerPackages...) // here is a network to download it
	return withOwn(t, networkManagerSystem)
}

const lookAtNetworkManager = "ip -br link | tr -s ' '; ip -br addr show scope global | tr -s ' '; ip route; " +
	"ip -6 route | grep -v fe80 || true; ls /etc/NetworkManager/system-connections; cat /etc/resolv.conf"

// officeComesUp has the owner's connection activated, as its owner does.
func officeComesUp(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, rigTime, func() bool {
		return exec.CommandContext(t.Context(), "nmcli", "connection", "up", "office").Run() == nil
	}, "the owner's connection is not activated")
	officeIsUp(t)
}

// officeIsUp waits until the owner's connection is in force.
func officeIsUp(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, rigTime, func() bool {
		text := hosttest.Shell(t, "ip addr show here; ip route; cat /etc/resolv.conf || true")
		return strings.Contains(text, "10.9.0.1/24") && strings.Contains(text, "default via 10.9.0.2") &&
			strings.Contains(text, "nameserver 10.9.0.2")
	}, "the owner's connection does not come up")
}

func TestNetworkManagerAppliesAndRestores(t *testing.T) {
	t.Parallel()
	if !withNetworkManager(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	officeComesUp(t)
	before := hosttest.Shell(t, lookAtNetworkManager)
	c := fullCard()
	hosttest.Must(t, h.NetworkSupport(t.Context(), c))
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	if saved.Manager != network.NetworkManager {
		t.Fatalf("told to %q", saved.Manager)
	}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	shown := hosttest.Shell(t, "ip addr show here; ip route; ip -6 route; cat /etc/resolv.conf")
	wantIn(t, shown, "192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64", "mtu 1400", "default via 192.0.2.1",
		"10.20.0.0/16 via 192.0.2.2", "metric 50", "198.51.100.0/24", "2001:db8:5::/48 via 2001:db8::1",
		"nameserver 192.0.2.53", "example.org")
	if strings.Contains(shown, "10.9.0.1") {
		t.Error("the old address is still there")
	}
	hosttest.Shell(
		t,
		"ip addr add 192.0.2.99/24 dev here; echo '# mine' >>/etc/NetworkManager/system-connections/ingot-here.nmconnection",
	)
	s, err := h.Network(t.Context(), c, nil)
	hosttest.Must(t, err)
	wantIn(t, s.Diff, "+++ host/etc/NetworkManager/system-connections/ingot-here.nmconnection\n", "+# mine\n",
		"+here: address 192.0.2.99/24\n")
	hosttest.Shell(t, "ip addr del 192.0.2.99/24 dev here")

	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	officeIsUp(t)
	if after := hosttest.Shell(t, lookAtNetworkManager); after != before {
		t.Errorf("before:\n%s\nafter the rollback:\n%s", before, after)
	}
}

// TestNetworkManagerIsGivenBack goes from one configuration to another and to none.
func TestNetworkManagerIsGivenBack(t *testing.T) {
	t.Parallel()
	if !withNetworkManager(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	officeComesUp(t)
	one := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	two := network.Config{
		Interfaces: []network.Interface{{Name: "here", Addresses: []netip.Prefix{prefix("192.0.2.77/24")},
			MTU: 1400}},
	}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, one))
	saved, err := h.SaveNetwork(t.Context(), two)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, two))
	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	if s, err := h.Network(t.Context(), one, nil); err != nil || s.Diff != "" {
		t.Errorf("after the rollback: %v\n%s", err, s.Diff)
	}
	wantIn(t, hosttest.Shell(t, "ip addr show here"), "192.0.2.7/24", "mtu 1500")
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, network.Config{}))
	officeIsUp(t)
	if strings.Contains(hosttest.Shell(t, "ip addr show here"), "192.0.2.7") {
		t.Error("our address is still there")
	}
}
