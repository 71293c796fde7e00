package host

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/netcheck"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// checked makes the checks and returns them by name and subject.
func checked(
	t *testing.T,
	c network.Config,
	before *network.SavedNetwork,
	controllers ...string,
) map[string]netcheck.Check {
	t.Helper()
	var to []netip.AddrPort
	for _, a := range controllers {
		to = append(to, netip.AddrPortFrom(netip.MustParseAddr(a), 50052))
	}
	got, err := New(Config{}).CheckNetwork(t.Context(), c, before, to)
	hosttest.Must(t, err)
	out := map[string]netcheck.Check{}
	for _, x := range got {
		out[x.Name+" "+x.Subject] = x
	}
	return out
}

// wantChecks fails the test unless got has exactly the checks of want, each as "result detail…" by name and subject.
func wantChecks(t *testing.T, when string, got map[string]netcheck.Check, want map[string]string) {
	t.Helper()
	for key, w := range want {
		result, detail, _ := strings.Cut(w, " ")
		if g, ok := got[key]; !ok || string(g.Result) != result || !strings.Contains(g.Detail, detail) {
			t.Errorf("%s: %s: got %q, %q; want %s", when, key, g.Result, g.Detail, w)
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: not asked for: %s", when, g)
		}
	}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// ordinary is what the cable of newPeer6 is configured with.
func ordinary(gateway string, dns ...string) network.Config {
	c := card("here", "10.9.0.1/24")
	c.Gateway, c.DNS = netip.MustParseAddr(gateway), addrs(dns...)
	return network.Config{Interfaces: []network.Interface{c}}
}

func TestChecksOfAGoodNetwork(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	p.There("ip addr add 10.9.0.53/24 dev there; ip addr add 10.9.0.54/24 dev there")
	// A resolver without the name answers NXDOMAIN; one without an upstream server refuses.
	p.Background("dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
		"--no-hosts", "--bind-interfaces", "--listen-address=10.9.0.53", "--local=/#/")
	p.Background("dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
		"--no-hosts", "--bind-interfaces", "--listen-address=10.9.0.54")
	testkit.Eventually(t, 10*time.Second,
		func() bool { return strings.Count(p.There("ss -Hlun || cat /proc/net/udp"), ":53 ") >= 2 },
		"dnsmasq does not listen")
	c := ordinary("10.9.0.2", "10.9.0.53", "10.9.0.54")
	six := card("here", "fd00::1/64")
	six.Gateway = netip.MustParseAddr("fd00::2")
	c.Interfaces[0].Addresses = append(c.Interfaces[0].Addresses, prefix("fd00::1/64"), prefix("fd00::9/64"))
	hosttest.Shell(t, "ip addr add fd00::9/64 dev here")
	wantChecks(t, "IPv4", checked(t, c, nil, "10.9.0.2", "10.9.0.53", "127.0.0.1"), map[string]string{
		"link here":                       "pass up, MTU 1500",
		"duplicate_address here 10.9.0.1": "pass",
		"duplicate_address here fd00::1":  "unknown exempt",
		"duplicate_address here fd00::9":  "pass",
		"gateway here 10.9.0.2":           "pass answers for it",
		"path_mtu here 10.9.0.2":          "pass 1500",
		"path_mtu here 10.9.0.53":         "pass 1500",
		"name_server here 10.9.0.53":      "pass",
		"name_server here 10.9.0.54":      "warn Refused",
	})
	wantChecks(t, "IPv6", checked(t, network.Config{Interfaces: []network.Interface{six}}, nil), map[string]string{
		"link here":                      "pass",
		"duplicate_address here fd00::1": "unknown",
		"gateway here fd00::2":           "pass answers for it",
		"path_mtu here fd00::2":          "pass 1500",
	})
}

func TestAnAddressOfAnother(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	p.There("ip addr add 10.9.0.1/24 dev there; ip addr add fd00::77/64 dev there nodad")
	hosttest.Shell(t, "ip addr add fd00::77/64 dev here")
	c := network.Config{Interfaces: []network.Interface{card("here", "10.9.0.1/24", "fd00::77/64")}}
	wantChecks(
		t,
		"new",
		checked(t, c, &network.SavedNetwork{Links: []network.SavedLink{{Name: "here"}}}),
		map[string]string{
			"link here":                       "pass",
			"duplicate_address here 10.9.0.1": "fail has the address too",
			"duplicate_address here fd00::77": "fail another owner",
		},
	)
	had := &network.SavedNetwork{
		Links: []network.SavedLink{{Name: "here", Addresses: []netip.Prefix{prefix("10.9.0.1/24"), prefix("fd00::77/64")}}}}
	wantChecks(t, "as before", checked(t, c, had), map[string]string{
		"link here":                       "pass",
		"duplicate_address here 10.9.0.1": "warn has the address too",
		"duplicate_address here fd00::77": "warn another owner",
	})
}

func TestAGatewayThatIsNotThere(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	got := checked(t, ordinary("10.9.0.9"), nil)
	if g := got["gateway here 10.9.0.9"]; g.Result != netcheck.Fail {
		t.Errorf("never there: %s", g)
	}
	if g := got["path_mtu here 10.9.0.9"]; g.Result != netcheck.Unknown {
		t.Errorf("never there: %s", g)
	}
	if g := checked(t, ordinary("10.9.0.2"), nil)["gateway here 10.9.0.2"]; g.Result != netcheck.Pass {
		t.Fatalf("there: %s", g)
	}
	p.There("ip addr del 10.9.0.2/24 dev there") // and the kernel here still knows it
	if g := checked(t, ordinary("10.9.0.2"), nil)["gateway here 10.9.0.2"]; g.Result != netcheck.Fail {
		t.Errorf("gone, and in the kernel's memory: %s", g)
	}
	p.There("ip link set there down")
	wantChecks(t, "no cable", checked(t, ordinary("10.9.0.2", "10.9.0.53"), nil), map[string]string{
		"link here":                       "warn no carrier",
		"duplicate_address here 10.9.0.1": "unknown no carrier",
		"gateway here 10.9.0.2":           "unknown no carrier",
		"path_mtu here 10.9.0.2":          "unknown no carrier",
		"name_server here 10.9.0.53":      "unknown no carrier",
	})
}

func TestNameServersThatAreDead(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	p.There("nft 'add table inet f; add chain inet f in { type filter hook input priority 0; }; add rule inet f in ip " +
		"daddr 10.9.0.3 drop'; ip addr add 10.9.0.3/24 dev there")
	c := ordinary("10.9.0.2", "10.9.0.2", "10.9.0.3") // a closed port, and silence
	got := checked(t, c, nil)
	for _, s := range []string{"10.9.0.2", "10.9.0.3"} {
		if g := got["name_server here "+s]; g.Result != netcheck.Fail {
			t.Errorf("all dead: %s", g)
		}
	}
}

// TestPathMTU: what a TCP handshake does not show. The other side takes smaller packets than were ordered here.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	hosttest.Shell(t, "ip link set here mtu 9000")
	hosttest.Echo(t, p.PID, "50052")
	for _, gateway := range []string{"10.9.0.2", "fd00::2"} {
		c := ordinary(gateway)
		key := "path_mtu here " + gateway
		if g := checked(t, c, nil)[key]; g.Result != netcheck.Warn {
			t.Errorf("not ordered: %s", g)
		}
		c.Interfaces[0].MTU = 9000
		if g := checked(t, c, nil)[key]; g.Result != netcheck.Fail || !strings.Contains(g.Detail, "9000 bytes are lost") {
			t.Errorf("ordered: %s", g)
		}
		if !hosttest.CanDial(fmt.Sprintf("[%s]:50052", gateway)) {
			t.Error("the handshake that shows nothing is not made")
		}
	}
	p.There("ip link set there mtu 9000")
	c := ordinary("10.9.0.2")
	c.Interfaces[0].MTU = 9000
	if g := checked(t, c, nil)["path_mtu here 10.9.0.2"]; g.Result != netcheck.Pass {
		t.Errorf("the same on both sides: %s", g)
	}
	p.There("nft 'add table inet f; add chain inet f in { type filter hook input priority 0; }; add rule inet f in meta " +
		"l4proto icmp drop'")
	if g := checked(t, c, nil)["path_mtu here 10.9.0.2"]; g.Result != netcheck.Unknown {
		t.Errorf("ICMP is filtered: %s", g)
	}
}

// TestPathMTUBehindARouter: a smaller MTU on the way is none of the order's business as long as the router reports it.
func TestPathMTUBehindARouter(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer(t)
	far := exec.CommandContext(t.Context(), "sleep", "120")
	far.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	hosttest.Must(t, far.Start())
	t.Cleanup(func() {
		_ = far.Process.Kill() // it may have ended
		_ = far.Wait()         // and was killed
	})
	pid := fmt.Sprint(far.Process.Pid)
	p.There("ip link add far type veth peer name end netns " + pid + "; ip link set far mtu 1400; ip link set far up; " +
		"ip addr add 10.7.0.1/24 dev far; echo 1 >/proc/sys/net/ipv4/ip_forward")
	hosttest.Shell(
		t,
		"nsenter -n -t "+pid+" sh -ec 'ip link set end mtu 1400; ip link set end up; ip addr add 10.7.0.2/24 dev end; "+
			"ip route add default via 10.7.0.1'",
	)
	hosttest.Shell(t, "ip route add default via 10.9.0.2")
	c := ordinary("10.9.0.2")
	c.Interfaces[0].MTU = 1500
	const key = "path_mtu here 10.7.0.2"
	p.There("nft 'add table inet f; add chain inet f out { type filter hook output priority 0; }; add rule inet f out " +
		"icmp type destination-unreachable drop'")
	if g := checked(t, c, nil, "10.7.0.2")[key]; g.Result != netcheck.Fail {
		t.Errorf("a black hole: %s", g)
	}
	p.There("nft delete table inet f")
	for range 2 { // the second time the kernel knows
		if g := checked(t, c, nil, "10.7.0.2")[key]; g.Result != netcheck.Pass || !strings.Contains(g.Detail, "1400") {
			t.Errorf("a router that says so: %s", g)
		}
	}
}

// TestChecksOfABond: with a switch that speaks LACP, made of the kernel's own bonding driver, and without.
func TestChecksOfABond(t *testing.T) {
	t.Parallel()
	if !hosttest.InVM(t, ownSystem) {
		return
	}
	h, _ := unguarded(t)
	hosttest.Shell(t, `for n in 0 1; do ip link add a$n type veth peer name b$n; ip link set b$n up; done`)
	c := network.Config{Interfaces: []network.Interface{{
		Name: "bond0", Addresses: []netip.Prefix{prefix("10.9.0.1/24")},
		Bond: &network.Bond{Members: []string{"a0", "a1"}, Mode: "802.3ad", MIIMon: 100 * time.Millisecond, LACPFast: true},
	}}}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	eventually := func(when string, want map[string]string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			got := checked(t, c, nil)
			delete(got, "duplicate_address bond0 10.9.0.1") // depends on the link alone
			good := len(got) == len(want)
			for key, w := range want {
				result, detail, _ := strings.Cut(w, " ")
				good = good && string(got[key].Result) == result && strings.Contains(got[key].Detail, detail)
			}
			if good || time.Now().After(end) {
				wantChecks(t, when, got, want)
				return
			}
		}
	}
	eventually("nobody speaks LACP", map[string]string{
		"link bond0": "pass", "bond_members bond0": "pass 2 members", "bond_partner bond0": "warn no LACP partner",
	})
	hosttest.Shell(t, `ip link add switch type bond mode 802.3ad lacp_rate fast miimon 100
		for n in 0 1; do ip link set b$n down; ip link set b$n master switch; ip link set b$n up; done; ip link set switch up`)
	eventually("with a partner", map[string]string{
		"link bond0": "pass", "bond_members bond0": "pass", "bond_partner bond0": "pass 2 members in one aggregate",
	})
	hosttest.Shell(t, "ip link set b1 down")
	eventually("one cable out", map[string]string{
		"link bond0": "pass", "bond_members bond0": "warn without a link: a1", "bond_partner bond0": "warn 1 of 2",
	})
	hosttest.Shell(t, "ip link set a1 nomaster")
	eventually("one is no member", map[string]string{
		"link bond0": "pass", "bond_members bond0": "fail a1", "bond_partner bond0": "warn 1 of 2",
	})
	hosttest.Shell(t, "ip link set b0 down")
	got := checked(t, c, nil)
	if g := got["bond_members bond0"]; g.Result != netcheck.Fail {
		t.Errorf("no cable: %s", g)
	}
}
