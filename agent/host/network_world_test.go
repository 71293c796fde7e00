package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/network/networkd"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

const (
	controllerOfRuns = "203.0.113.1"
	// beginTime is for what a run begins with, on a machine that does much else.
	beginTime = 4 * time.Minute
)

// layCables connects three cards here with a switch in another network, where the controller and every gateway are.
func (r *run) layCables() {
	site := exec.CommandContext(context.WithoutCancel(r.t.Context()), "sleep", "600")
	site.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	hosttest.Must(r.t, site.Start())
	r.t.Cleanup(func() {
		_ = site.Process.Kill() // it may have ended
		_ = site.Wait()         // and was killed
	})
	r.site = strconv.Itoa(site.Process.Pid)
	there := "nsenter -n -t " + r.site + " ip "
	lines := []string{there + "link set lo up", there + "link add br0 type bridge", there + "link set br0 up", there +
		"addr add " + controllerOfRuns + "/32 dev lo",
		there + "addr add 2001:db8::fe/64 dev br0 nodad"}
	for i := range 3 {
		lines = append(lines,
			fmt.Sprintf("ip link add c%d address 52:54:00:aa:00:0%d type veth peer name p%d netns %s", i, i, i, r.site),
			fmt.Sprintf("%slink set p%d master br0 up", there, i), fmt.Sprintf("%saddr add 10.%d.0.254/24 dev br0", there, i))
	}
	for _, id := range []int{20, 21} {
		if !r.bonds {
			break
		}
		lines = append(lines, fmt.Sprintf("%slink add br0.%d link br0 type vlan id %d", there, id, id),
			fmt.Sprintf("%slink set br0.%d up", there, id),
			fmt.Sprintf("%saddr add 10.%d.0.254/24 dev br0.%d", there, id, id))
	}
	hosttest.Shell(r.t, strings.Join(lines, "\n"))
}

// begin is a network of ours, or of foreign files.
func (r *run) begin() {
	if r.rand.IntN(4) > 0 || r.native {
		c := r.config(false)
		r.until("the first configuration is not applied",
			func() bool { return r.host.ApplyNetwork(r.t.Context(), effect.Cause{}, c) == nil })
		return
	}
	for i := range 2 {
		hosttest.WriteFile(r.t, fmt.Sprintf("/etc/systemd/network/10-c%d.network", i),
			fmt.Sprintf("[Match]\nName=c%d\n[Network]\nLinkLocalAddressing=no\nAddress=10.%d.0.9/24\n%s", i, i,
				[]string{"Gateway=10.0.0.254\n", ""}[i]))
	}
	hosttest.Must(r.t, networkd.Manager{System: r.host.System}.Load(r.t.Context(), network.Load{}))
	r.until("the files of somebody else do nothing", func() bool {
		text := hosttest.Shell(r.t, "ip addr; ip route")
		return strings.Contains(text, "10.0.0.9") && strings.Contains(text, "10.1.0.9") &&
			strings.Contains(text, "default via")
	})
}

func (r *run) until(what string, fn func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(beginTime); !fn(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal(what)
		}
	}
}

// config is a random configuration. The first interface has the gateway; a bad one leads nowhere.
func (r *run) config(bad bool) network.Config {
	cards := []string{"c0", "c1", "c2"}
	r.rand.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	var c network.Config
	octet := 10 + r.rand.IntN(100)
	net := func(n int) []netip.Prefix { return []netip.Prefix{prefix(fmt.Sprintf("10.%d.0.%d/24", n, octet))} }
	mtu := []int{0, 0, 1400, 1450}[r.rand.IntN(4)]
	if r.bonds && r.rand.IntN(2) == 0 {
		mode := []string{"active-backup", "802.3ad", "balance-xor"}[r.rand.IntN(3)]
		b := &network.Bond{Members: slices.Clone(cards[:2]), Mode: mode, MIIMon: 100 * time.Millisecond}
		if mode == "802.3ad" {
			b.LACPFast = r.rand.IntN(2) == 0
		}
		c.Interfaces = append(c.Interfaces, network.Interface{Name: "bond0", Bond: b, Addresses: net(0), MTU: mtu})
		cards = cards[2:]
	} else {
		c.Interfaces = append(c.Interfaces, network.Interface{Name: cards[0], Addresses: net(0), MTU: mtu})
		cards = cards[1:]
	}
	first := &c.Interfaces[0]
	first.Gateway = netip.MustParseAddr("10.0.0.254")
	if bad {
		first.Addresses, first.Gateway = []netip.Prefix{prefix("10.66.0.7/24")}, netip.MustParseAddr("10.66.0.254")
	}
	if r.rand.IntN(3) == 0 {
		first.Addresses = append(first.Addresses, prefix(fmt.Sprintf("2001:db8::%d/64", octet)))
	}
	if r.rand.IntN(2) == 0 {
		first.Routes = []network.Route{{Destination: prefix("198.51.100.0/24"), Via: first.Gateway,
			Metric: uint32(r.rand.IntN(2) * 50)}}
	}
	if r.rand.IntN(2) == 0 && len(cards) > 0 {
		c.Interfaces = append(c.Interfaces, network.Interface{Name: cards[0], Addresses: net(1)})
	}
	if r.bonds && r.rand.IntN(2) == 0 {
		id := 20 + r.rand.IntN(2)
		c.Interfaces = append(
			c.Interfaces,
			network.Interface{Name: "tag", VLAN: &network.VLAN{ID: id, Parent: c.Interfaces[0].Name},
				Addresses: net(id)},
		)
	}
	return c
}

// order is a good network in three of four runs, and a packet filter in one of three.
func (r *run) order() {
	good := r.rand.IntN(4) > 0
	r.change.Network = r.config(!good)
	if r.rand.IntN(3) == 0 {
		r.change.Firewall = &firewall.Policy{Generation: 2,
			InputDefault: []firewall.Verdict{firewall.VerdictAccept, firewall.VerdictDrop}[r.rand.IntN(2)]}
	}
	text, err := json.Marshal(r.change)
	hosttest.Must(r.t, err)
	hosttest.WriteFile(r.t, "/run/order.json", string(text))
	r.tell(fmt.Sprintf("native %t good %t order %s", r.native, good, text))
}

// others adds what the order has no part in: rules, tables, daemons' routes, addresses, a VLAN, packet filters.
func (r *run) others() {
	if r.rand.IntN(3) == 0 {
		r.change.Before = &firewall.Policy{
			Generation:        1,
			InputDefault:      firewall.VerdictAccept,
			SMTPEgressAllowed: r.rand.IntN(2) == 0,
		}
		hosttest.Must(r.t, r.host.ApplyFirewall(r.t.Context(), effect.Cause{}, *r.change.Before))
	}
	own := r.ownLinks()
	link := own[r.rand.IntN(len(own))]
	all := []string{
		"ip rule add from 10.99.0.0/16 table 100 priority 1000",
		"ip -6 rule add fwmark 7 table 101 priority 1001",
		"ip rule add iif " + link + " ipproto 6 dport 443 lookup 103 priority 1002",
		"ip route add default via 10.0.0.254 dev " + own[0] + " table 100",
		"ip route add 192.0.2.0/24 dev " + link + " table 102 proto bird",
		"ip route add 192.0.3.0/24 via 10.0.0.254 dev " + own[0] + " proto bird metric 20",
		"ip route add 192.0.4.0/24 dev " + link + " src " + addressOn(r.t, link) + " mtu 1200",
		"ip route add blackhole 192.0.6.0/24 proto bird",
		"ip route add 192.0.7.0/24 via 192.0.2.77 dev " + link + " onlink",
		"ip route add unreachable default table 104 metric 4096",
		"ip addr add 10.98.0.1/32 dev " + link,
		"ip link add theirs link " + link + " type vlan id 99; ip addr add 10.97.0.1/24 dev theirs; ip link set theirs up; " +
			"ip route add 192.0.8.0/24 via 10.97.0.2 dev theirs table 105",
		"ip route add 192.0.5.0/24 nexthop via 10.0.0.254 dev " + own[0] + " weight 2 nexthop via 10.0.0.253 dev " + own[0],
		"nft 'table inet theirs { chain in { type filter hook input priority 10; tcp dport 2222 drop; }; set s { type " +
			"ipv4_addr; elements = { 192.0.2.9 }; }; }'",
		"nft 'table ip nat { chain post { type nat hook postrouting priority 100; ip saddr 10.97.0.0/24 oifname " + link +
			" snat to 10.0.0.3; }; }'",
	}
	for _, line := range all {
		if r.rand.IntN(3) == 0 && (r.bonds || !strings.Contains(line, "vlan")) {
			hosttest.Shell(r.t, line)
		}
	}
}

var addressLine = regexp.MustCompile(`inet (\S+)/`)

func addressOn(t *testing.T, link string) string {
	t.Helper()
	m := addressLine.FindStringSubmatch(hosttest.Shell(t, "ip -4 addr show dev "+link))
	if m == nil {
		t.Fatalf("%s has no address", link)
	}
	return m[1]
}

// ownLinks are those with an address, that of the gateway first.
func (r *run) ownLinks() []string {
	var out []string
	for _, line := range textdiff.Lines(hosttest.Shell(r.t, "ip -o -4 addr show scope global")) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[3], "10.0.0.") {
			out = append([]string{f[1]}, out...)
		} else {
			out = append(out, f[1])
		}
	}
	return out
}

// ownAddresses are those that the site knows the way to.
func (r *run) ownAddresses() []string {
	var out []string
	for _, m := range addressLine.FindAllStringSubmatch(hosttest.Shell(r.t, "ip -o -4 addr show scope global"), -1) {
		if !strings.HasPrefix(m[1], "10.9") {
			out = append(out, m[1])
		}
	}
	return out
}

func addressesOf(c network.Config) []string {
	var out []string
	for _, i := range c.Interfaces {
		for _, a := range i.Addresses {
			out = append(out, a.Addr().String())
		}
	}
	return out
}

// reachable asks each address from the site.
func (r *run) reachable(addresses ...string) bool {
	if len(addresses) == 0 {
		return false
	}
	hosttest.Shell(r.t, "nsenter -n -t "+r.site+" ip neigh flush all")
	for _, a := range addresses {
		ok := false
		for range 5 {
			if exec.CommandContext(r.t.Context(), "nsenter", "-n", "-t", r.site, "/bin/busybox", "ping", "-c", "1", "-W", "1",
				a).Run() == nil {
				ok = true
				break
			}
		}
		if !ok {
			fmt.Printf("STORY %s does not answer\n", a)
			return false
		}
	}
	return true
}

// runFault strikes at a time after the change began; lift ends what lasts.
type runFault struct {
	name string
	at   time.Duration
	// holds: the kernel is restored though the rollback cannot end yet.
	holds bool
	// drops: a foreign restart of networkd drops rules and routes that are not its own, whatever Ingot does
	// (ManageForeignRoutingPolicyRules= in networkd.conf(5)).
	drops  bool
	came   []string // texts of foreign additions meanwhile
	strike func(*os.Process)
	lift   func()
}

func (r *run) fault() *runFault {
	f := &runFault{at: time.Duration(r.rand.IntN(5000)) * time.Millisecond, strike: func(*os.Process) {}, lift: func() {}}
	kill := func(p *os.Process) { _ = p.Kill() } // it may have ended
	picks := 11
	if r.native {
		picks = 7
	}
	switch pick := r.rand.IntN(picks); pick {
	case 0:
		f.name = "none"
	case 1, 2:
		f.name, f.strike = "kill", kill
	case 3, 4:
		f.name, f.holds, f.lift = "read-only", true, r.writable
		f.strike = func(p *os.Process) {
			r.readOnly()
			if pick == 4 {
				kill(p)
			}
		}
	case 5:
		f.name, f.holds = "disk full", true
		f.strike = func(*os.Process) { hosttest.Shell(r.t, "cat /dev/zero >/etc/filler 2>/dev/null || true") }
		f.lift = func() { _ = os.Remove("/etc/filler") } // it may not have come to that
	case 6:
		r.foreign(f)
	case 7:
		f.drops = true
		f.name, f.strike = "networkd restarts",
			func(*os.Process) { hosttest.Must(r.t, restartNetworkd(r.t.Context(), r.host)) }
	case 8:
		f.drops = true
		// it may be on its way up
		f.name, f.strike = "networkd dies", func(*os.Process) { _ = unix.Kill(networkdPID(), unix.SIGKILL) }
	case 9:
		f.name, f.holds = "networkd hangs", true
		signal := func(s unix.Signal) { // the change may have it restarted just now
			r.until("networkd does not run", func() bool { return unix.Kill(networkdPID(), s) == nil })
		}
		f.strike = func(*os.Process) { signal(unix.SIGSTOP) }
		f.lift = func() { signal(unix.SIGCONT) }
	case 10:
		r.slow(f)
	}
	return f
}

func (r *run) readOnly() {
	r.until("/etc is always being written", func() bool {
		return unix.Mount("", "/etc", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") == nil
	})
}

func (r *run) writable() {
	hosttest.Must(r.t, unix.Mount("", "/etc", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
}

// foreign is what keepalived, a routing daemon or an administrator adds in the middle of the change.
func (r *run) foreign(f *runFault) {
	link := r.ownLinks()[0]
	line := ""
	switch r.rand.IntN(4) {
	case 0:
		f.came, line = []string{"10.96.0.1/32"}, "ip addr add 10.96.0.1/32 dev "+link
	case 1:
		f.came, line = []string{"192.0.9.0/24"}, "ip route add 192.0.9.0/24 dev "+link+" proto 42"
	case 2:
		f.came, line = []string{"rule 900: from 10.95.0.0/16"}, "ip rule add from 10.95.0.0/16 table 77 priority 900"
	case 3:
		f.came, line = []string{"nft ip late"}, "nft add table ip late"
	}
	// The link may be gone, or the change done, when it strikes.
	f.name, f.strike = "somebody else: "+line, func(*os.Process) { hosttest.Shell(r.t, line+" || true") }
}

// slow has networkd run for a tenth of the time.
func (r *run) slow(f *runFault) {
	stop, ended := make(chan struct{}), make(chan struct{})
	f.name = "networkd is slow"
	f.strike = func(*os.Process) {
		go func() {
			defer close(ended)
			for {
				pid := networkdPID()
				_ = unix.Kill(pid, unix.SIGSTOP) // it may be on its way up
				<-time.After(450 * time.Millisecond)
				_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
	}
	f.lift = func() {
		close(stop)
		select {
		case <-ended:
		case <-time.After(time.Second): // it has never begun
		}
	}
}
