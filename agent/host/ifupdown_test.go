package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// debianInterfaces is what Debian 12's installer writes for a card with a static address.
const debianInterfaces = `# This file describes the network interfaces available on your system
# and how to activate them. For more information, see interfaces(5).

source /etc/network/interfaces.d/*

# The loopback network interface
auto lo
iface lo inet loopback

# The primary network interface
allow-hotplug here
iface here inet static
	address 10.9.0.1/24
	gateway 10.9.0.2
	# dns-* options are implemented by the resolvconf package, if installed
	dns-nameservers 10.9.0.2
`

// ifupdownSystem is one with Debian's ifup, as the package has it.
func ifupdownSystem(t *testing.T) {
	t.Helper()
	root := unpacked(t, "ifupdown")
	ownFiles(t, smallDisk(t))
	for _, dir := range []string{"sbin", "lib"} {
		hosttest.Must(t, unix.Mount("overlay", "/usr/"+dir, "overlay", unix.MS_RDONLY,
			"lowerdir="+filepath.Join(root, dir)+":/usr/"+dir))
	}
	for _, dir := range []string{"/var/lib/dhcp", "/etc/network"} {
		hosttest.Must(t, os.MkdirAll(dir, 0o755))
	}
	hosttest.Must(t, unix.Mount("tmpfs", "/var/lib/dhcp", "tmpfs", 0, "mode=0755"))
	hosttest.Must(t, os.CopyFS("/etc/network", os.DirFS(filepath.Join(root, "etc/network"))))
	hosttest.WriteFile(t, "/etc/network/interfaces", debianInterfaces)
	hosttest.Must(t, os.MkdirAll("/run/network", 0o755)) // by systemd-tmpfiles at boot
	t.Cleanup(func() {
		pids, _ := filepath.Glob("/run/dhclient*.pid") // a constant pattern
		for _, p := range pids {
			_ = exec.Command("kill", strings.TrimSpace(hosttest.ReadFile(t, p))).Run() // it may have ended
		}
	})
}

// unpacked returns the directory with the files of Debian's packages.
func unpacked(t *testing.T, names ...string) string {
	t.Helper()
	cache, err := debian.DefaultCacheDir()
	hosttest.Must(t, err)
	root, err := debian.UnpackPackages(t.Context(), cache, names...)
	hosttest.Must(t, err)
	return root
}

// withIfupdown is withNetworkd on a host with ifupdown.
func withIfupdown(t *testing.T) bool {
	t.Helper()
	unpacked(t, "ifupdown") // here is a network to download it
	return withOwn(t, ifupdownSystem)
}

// ifupdownHost has detached programs run here, where there is no systemd. They outlive who starts them.
func ifupdownHost(t *testing.T) *Linux {
	t.Helper()
	h, _ := unguarded(t)
	h.Kernel.UnitState = func(_ context.Context, unit string) (string, error) {
		if unit == "networking.service" {
			return "active", nil
		}
		return "inactive", nil
	}
	h.Kernel.RunDetached = func(ctx context.Context, what string, wait bool, argv ...string) error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"}
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		said, err := os.OpenFile(detachedLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- errors.Join(cmd.Wait(), said.Close()) }()
		if !wait {
			return nil
		}
		select {
		case err := <-ended:
			if err != nil {
				said, _ := os.ReadFile(detachedLog) // it may not be there
				return fmt.Errorf("%s: %w: %s", what, err, said)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h
}

// detachedLog has what detached programs say.
const detachedLog = "/run/detached.log"

const lookAtIfupdown = "ip -br link | tr -s ' '; ip -br addr show scope global | tr -s ' '; ip route; ip -6 route; " +
	"ls /etc/network/interfaces.d; cat /etc/network/interfaces; sort /run/network/ifstate || true; " +
	"cat /etc/resolv.conf || true"

// lay brings the host up as it boots.
func lay(t *testing.T) hosttest.Peer {
	t.Helper()
	p := hosttest.NewPeer(t)
	hosttest.Shell(t, "ip addr flush dev here; ip link set here down; ifup -a; ifup here")
	return p
}

func fullCard() network.Config {
	return network.Config{Interfaces: []network.Interface{{
		Name: "here", Addresses: []netip.Prefix{prefix("192.0.2.7/24"), prefix("192.0.2.8/24"), prefix("2001:db8::7/64")},
		MTU: 1400, Gateway: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Search: []string{"example.org"},
		Routes: []network.Route{{Destination: prefix("10.20.0.0/16"), Via: netip.MustParseAddr("192.0.2.2"), Metric: 50},
			{Destination: prefix("198.51.100.0/24")},
			{Destination: prefix("2001:db8:5::/48"), Via: netip.MustParseAddr("2001:db8::1")}},
	}}}
}

func TestIfupdownAppliesBootsAndRestores(t *testing.T) {
	t.Parallel()
	if !withIfupdown(t) {
		return
	}
	h := ifupdownHost(t)
	lay(t)
	before := hosttest.Shell(t, lookAtIfupdown)
	wantIn(t, before, "10.9.0.1/24", "default via 10.9.0.2", "here=here")
	c := fullCard()
	hosttest.Must(t, h.NetworkSupport(t.Context(), c))
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	shown := hosttest.Shell(t, "ip addr show here; ip route; ip -6 route; cat /etc/resolv.conf /run/network/ifstate")
	wantIn(t, shown, "192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64", "mtu 1400", "default via 192.0.2.1",
		"10.20.0.0/16 via 192.0.2.2", "metric 50", "198.51.100.0/24", "2001:db8:5::/48 via 2001:db8::1",
		"nameserver 192.0.2.53", "here=here")
	if strings.Contains(shown, "10.9.0.1") {
		t.Error("the old address is still there")
	}

	// What a boot does with the files alone.
	hosttest.Shell(
		t,
		"ip link set here down; ip addr flush dev here; ip link set here mtu 1500; rm /run/network/ifstate*; "+
			"echo 1 >/proc/sys/net/ipv6/conf/here/accept_ra; ifup -a",
	)
	if s, err := h.Network(t.Context(), c, nil); err != nil || s.Diff != "" {
		t.Errorf("after a boot: %v\n%s", err, s.Diff)
	}
	hosttest.Shell(
		t,
		"sed -i 's/^#ingot# iface/iface/' /etc/network/interfaces; echo '# mine' >>/etc/network/interfaces.d/ingot",
	)
	s, err := h.Network(t.Context(), c, nil)
	hosttest.Must(t, err)
	wantIn(
		t,
		s.Diff,
		"--- committed/etc/network/interfaces\n",
		"+iface here inet static\n",
		"-#ingot# iface here inet static\n",
		"+++ host/etc/network/interfaces.d/ingot\n",
		"+# mine\n",
	)

	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	if after := hosttest.Shell(t, lookAtIfupdown); after != before {
		t.Errorf("before:\n%s\nafter the rollback:\n%s", before, after)
	}
}

// TestIfupdownIsGivenBack: a card that is not named any more is configured as its owner had it.
func TestIfupdownIsGivenBack(t *testing.T) {
	t.Parallel()
	if !withIfupdown(t) {
		return
	}
	h := ifupdownHost(t)
	lay(t)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, fullCard()))
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, network.Config{}))
	testkit.Eventually(t, rigTime, func() bool {
		return strings.Contains(hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24")
	}, "the owner's address does not come back")
	if got := hosttest.ReadFile(t, "/etc/network/interfaces"); got != debianInterfaces {
		t.Errorf("the owner's file is now:\n%s", got)
	}
	if strings.Contains(hosttest.Shell(t, "ip addr show here"), "192.0.2.7") {
		t.Error("our address is still there")
	}
}

// TestIfupdownWithLeases goes from a lease to a static address, back, and to a lease by order.
func TestIfupdownWithLeases(t *testing.T) {
	t.Parallel()
	if !withIfupdown(t) {
		return
	}
	h := ifupdownHost(t)
	p := hosttest.NewPeer(t)
	p.Background(
		"dnsmasq",
		"--keep-in-foreground",
		"--port=0",
		"--interface=there",
		"--bind-interfaces",
		"--conf-file=/dev/null",
		"--dhcp-range=10.9.0.50,10.9.0.90,1h",
		"--dhcp-option=option:router,10.9.0.2",
		"--dhcp-leasefile=/run/leases",
		"--user=root",
		"--pid-file=",
	)
	hosttest.WriteFile(t, "/etc/network/interfaces", "auto here\niface here inet dhcp\n")
	hosttest.Shell(t, "ip addr flush dev here; ip link set here down; ifup -a")
	leased := func() bool {
		text := hosttest.Shell(t, "ip addr show here; ip route")
		return strings.Contains(text, "10.9.0.") && strings.Contains(text, "dynamic") &&
			strings.Contains(text, "default via 10.9.0.2")
	}
	testkit.Eventually(t, rigTime, leased, "no lease at boot")

	static := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), static)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, static))
	if text := hosttest.Shell(t, "ip addr show here; ip route"); strings.Contains(text, "10.9.0.") {
		t.Errorf("the lease is still there:\n%s", text)
	}
	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	testkit.Eventually(t, rigTime, leased, "no lease after the rollback")
	if text := hosttest.Shell(t, "ip addr show here"); strings.Contains(text, "192.0.2.7") {
		t.Errorf("the change is still there:\n%s", text)
	}

	both := network.Config{Interfaces: []network.Interface{{Name: "here", DHCP4: true, MTU: 1400,
		Addresses: []netip.Prefix{prefix("192.0.2.7/24")}}}}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, both))
	testkit.Eventually(t, rigTime, leased, "no lease by order")
	if s, err := h.Network(t.Context(), both, nil); err != nil || s.Diff != "" {
		t.Errorf("with a lease: %v\n%s", err, s.Diff)
	}
	wantIn(t, hosttest.Shell(t, "ip addr show here"), "192.0.2.7/24", "mtu 1400")
}

func TestIfupdownGoesBackWheneverTheAgentDies(t *testing.T) {
	t.Parallel()
	if !withIfupdown(t) {
		return
	}
	lay(t)
	dieInBetween(t, lookAtIfupdown, func() {})
}

func TestNetworkManagerGoesBackWheneverTheAgentDies(t *testing.T) {
	t.Parallel()
	if !withNetworkManager(t) {
		return
	}
	hosttest.NewPeer(t)
	officeComesUp(t)
	dieInBetween(t, lookAtNetworkManager, func() { officeIsUp(t) })
}

// dieInBetween kills the process that carries a change out at different times. What others do for it then goes on, as a
// unit of systemd would.
func dieInBetween(t *testing.T, look string, atRest func()) {
	t.Helper()
	h := ifupdownHost(t)
	before := hosttest.Shell(t, look)
	for k := range 8 {
		change := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChangeOfAManager$", "-test.v")
		change.Env = append(os.Environ(), "INGOT_NETWORK_CHANGE=1")
		change.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		hosttest.Must(t, change.Start())
		after := time.Duration(k) * 150 * time.Millisecond
		kill := time.AfterFunc(after, func() { _ = change.Process.Kill() }) // or it has ended
		_ = change.Wait()                                                   // however it ended
		kill.Stop()
		if g, err := h.Guarded(t.Context()); err != nil || g == nil {
			continue // killed before it began
		}
		if _, err := h.RollBackPending(t.Context(), true); err != nil {
			t.Fatalf("killed after %s: %v", after, err)
		}
		atRest()
		if now := hosttest.Shell(t, look); now != before {
			t.Fatalf("killed after %s: before:\n%s\nafter:\n%s", after, before, now)
		}
	}
	if g, err := h.Guarded(t.Context()); err != nil || g == nil || g.State != rollback.GuardRolledBack {
		t.Errorf("no change has begun: %+v, %v", g, err)
	}
}

// TestChangeOfAManager is the process that carries a change out.
func TestChangeOfAManager(t *testing.T) {
	if os.Getenv("INGOT_NETWORK_CHANGE") != "1" {
		t.Skip("part of dieInBetween")
	}
	h := ifupdownHost(t)
	c := fullCard()
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: fmt.Sprintf("c%d", os.Getpid()),
		Deadline: clock.Boottime() + time.Minute, Network: &saved}))
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
}
