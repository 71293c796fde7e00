package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// A run gives a host with a systemd-networkd of its own a random network, of ours and of others, a random order, and a random
// fault while the order is carried out. It must end in the new state, proven, or in the old one, equal in files and kernel, and
// the host must be reachable. What is compared is what ip(8) shows, and not what the code under test reads.
const (
	runsVariable = "INGOT_NETWORK_RUNS" // FIRST:COUNT, of seeds
	seedVariable = "INGOT_NETWORK_SEED" // of one run
	doneVariable = "INGOT_NETWORK_DONE" // a file of the seeds that are done, to go on after an interruption
	runsAtOnce   = 6
	runsPerVM    = 24
	shortRuns    = 4
	changeLimit  = 12 * time.Second
)

const controllerOfRuns = "203.0.113.1"

// TestNetworkRuns makes the runs in virtual machines, because few kernels that containers share have bonds and VLANs.
func TestNetworkRuns(t *testing.T) {
	switch {
	case os.Getenv(seedVariable) != "":
		seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
		must(t, err)
		ownSystem(t)
		networkRun(t, seed)
	case os.Getenv(vmVariable) == "1":
		first, count := runsOf(t)
		runAll(t, first, count)
	default:
		t.Parallel()
		first, count := runsOf(t)
		for count > 0 {
			n := min(count, runsPerVM)
			runInVM(t, first, n)
			first, count = first+uint64(n), count-n
		}
	}
}

func runsOf(t *testing.T) (first uint64, count int) {
	t.Helper()
	text := os.Getenv(runsVariable)
	if text == "" {
		return 1, shortRuns
	}
	_, err := fmt.Sscanf(text, "%d:%d", &first, &count)
	must(t, err)
	return first, count
}

var runEnded = regexp.MustCompile(`(?m)^RUN (\d+) (ok|FAILED)(.*)$`)

// runInVM makes runs in one machine, but for those that are done already.
func runInVM(t *testing.T, first uint64, count int) {
	t.Helper()
	done := os.Getenv(doneVariable)
	var before []byte
	if done != "" {
		before, _ = os.ReadFile(done) // none yet
	}
	last := fmt.Sprintf("RUN %d ok", first+uint64(count)-1)
	if strings.Count(string(before), "\n") > 0 && strings.Contains(string(before), last+" ") {
		return
	}
	out, err := runVM(t, fmt.Sprintf("%s=%d:%d", runsVariable, first, count), time.Duration(count)*40*time.Second+2*time.Minute)
	found := runEnded.FindAllString(out, -1)
	for _, line := range found {
		t.Log(line)
	}
	if err != nil || len(found) != count || !strings.Contains(out, "TEST ENDED 0") {
		t.Errorf("runs %d to %d: %v, %d of %d ended\n%s", first, first+uint64(count)-1, err, len(found), count, out)
		return
	}
	if done == "" {
		return
	}
	slices.Sort(found)
	f, err := os.OpenFile(done, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = f.WriteString(strings.Join(found, " \n") + " \n" + last + " \n")
	must(t, err)
	must(t, f.Close())
}

// runAll makes each run in namespaces of its own.
func runAll(t *testing.T, first uint64, count int) {
	t.Helper()
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range runsAtOnce {
		wg.Go(func() {
			for seed := range seeds {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNetworkRuns$", "-test.v", "-test.timeout=120s")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", seedVariable, seed), networkdVariable+"=1")
				cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Pdeathsig: unix.SIGKILL}
				out, err := cmd.CombinedOutput()
				story := strings.Join(regexp.MustCompile(`(?m)STORY (.*)$`).FindAllString(string(out), -1), "; ")
				if err != nil {
					t.Errorf("run %d: %v\n%s", seed, err, out)
					fmt.Printf("\nRUN %d FAILED %s\n", seed, story)
					continue
				}
				fmt.Printf("\nRUN %d ok %s\n", seed, story)
			}
		})
	}
	for i := range count {
		seeds <- first + uint64(i)
	}
	close(seeds)
	wg.Wait()
}

const networkdPIDFile = "/run/networkd.pid"

// supervise starts networkd again whenever it ends, as systemd does.
func supervise(t *testing.T) {
	t.Helper()
	stopNetworkd()
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // its end would be the end of what it has started
		for {
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/lib/systemd/systemd-networkd")
			cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
			if cmd.Start() != nil || os.WriteFile(networkdPIDFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600) != nil {
				return
			}
			_ = cmd.Wait() // however it ended
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		_ = unix.Kill(networkdPID(), unix.SIGKILL) // it may have ended
		<-ended
	})
	h := New(Config{})
	testkit.Eventually(t, 20*time.Second, func() bool { return h.networkd(t.Context()) }, "networkd is not on the bus")
}

func networkdPID() int {
	b, _ := os.ReadFile(networkdPIDFile) // none yet
	pid, _ := strconv.Atoi(string(b))    // 0: none
	if pid == 0 {
		return 1 << 30 // nobody's
	}
	return pid
}

// restartNetworkd returns when another one is on the bus.
func restartNetworkd(ctx context.Context, h *Linux) error {
	old := networkdPID()
	if err := unix.Kill(old, unix.SIGTERM); err != nil {
		return fmt.Errorf("stop networkd: %w", err)
	}
	for range 200 {
		if networkdPID() != old && h.networkd(ctx) {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return errors.New("networkd does not come back")
}

// run is one run's world.
type run struct {
	t    *testing.T
	rand *rand.Rand
	host *Linux
	site string // process in the other network
}

func networkRun(t *testing.T, seed uint64) {
	r := &run{t: t, rand: rand.New(rand.NewPCG(seed, 1))}
	r.host, _ = unguarded(t)
	r.host.kernel.restart = func(ctx context.Context, _ string) error { return restartNetworkd(ctx, r.host) }
	supervise(t)
	r.layCables()
	r.begin()
	r.others()
	before, filesBefore := r.look(), r.files()
	if !r.reachable(r.ownAddresses()...) {
		t.Fatalf("the host is not reachable at the beginning:\n%s", before)
	}
	order, good := r.order()
	text, err := json.Marshal(order)
	must(t, err)
	writeFile(t, "/run/order.json", string(text))
	fault := r.fault()
	fmt.Printf("STORY good %t fault %s order %s\n", good, fault.name, text)

	change := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^TestNetworkChange$", "-test.v")
	change.Env = append(os.Environ(), "INGOT_NETWORK_CHANGE=1")
	var said bytes.Buffer
	change.Stdout, change.Stderr = &said, &said
	must(t, change.Start())
	ended := make(chan struct{})
	go func() {
		_ = change.Wait() // it may have been killed
		close(ended)
	}()
	after := time.NewTimer(fault.at)
	select {
	case <-after.C:
		fault.strike(change.Process)
	case <-ended:
	}
	<-ended
	// As the agent and systemd's timer do: again and again, whatever the files do.
	tries := 0
	pending := func() bool {
		g, err := r.host.Guarded(t.Context())
		must(t, err)
		if g == nil || g.State != GuardPending {
			return false
		}
		if !g.Due(r.host.bootID(), clock.Boottime()) {
			<-time.After(g.Deadline - clock.Boottime() + 10*time.Millisecond)
		}
		_, err = r.host.RollBackPending(t.Context(), false)
		said.WriteString(fmt.Sprintf("try %d: %v\n", tries, err))
		tries++
		return err != nil
	}
	if pending() && fault.holds {
		if now := r.look(); now != before {
			t.Errorf("the kernel is not as it was though the way back was gone:\n%s\n%s", diffText(before, now), said.String())
		}
	}
	fault.lift()
	for range 3 {
		if !pending() {
			break
		}
	}
	r.judge(order, before, filesBefore, fault.came, said.String())
}

func diffText(before, after string) string {
	return UnifiedDiff("before", "after", textLines(before), textLines(after))
}

// judge holds the end of the run against the promise.
func (r *run) judge(order NetworkConfig, before, filesBefore string, came []string, said string) {
	r.t.Helper()
	g, err := r.host.Guarded(r.t.Context())
	must(r.t, err)
	now := r.look()
	if g != nil && g.State == GuardCommitted {
		s, err := r.host.Network(r.t.Context(), order, g.Network)
		if err != nil || s.Diff != "" {
			r.t.Errorf("committed, and not as ordered: %v\n%s\n%s", err, s.Diff, said)
		}
		if lost := r.lostOthers(order, before, now); len(lost) > 0 {
			r.t.Errorf("committed, and others have lost:\n%s\n%s", strings.Join(lost, "\n"), said)
		}
		if !r.reachable(addressesOf(order)...) {
			r.t.Errorf("committed, and not reachable:\n%s\n%s", now, said)
		}
		fmt.Println("STORY committed")
		return
	}
	if g != nil && g.State == GuardPending {
		r.t.Errorf("the way back does not end: %s\n%s", g.Error, said)
	}
	fmt.Println("STORY rolled back")
	if diff := diffText(before, now); diff != "" && !onlyAdds(diff, came) {
		r.t.Errorf("rolled back, and not equal:\n%s\n%s", diff, said)
	}
	if diff := diffText(filesBefore, r.files()); diff != "" {
		r.t.Errorf("rolled back, and the files are others:\n%s\n%s", diff, said)
	}
	if !r.reachable(r.ownAddresses()...) {
		r.t.Errorf("rolled back, and not reachable:\n%s\n%s", now, said)
	}
}

// onlyAdds says whether a diff does nothing but add lines that have one of the texts.
func onlyAdds(diff string, texts []string) bool {
	for _, line := range strings.Split(diff, "\n") {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "+++") {
			continue
		}
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") && !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(line, s) }) {
			return false
		}
	}
	return true
}

// lostOthers are the rules that are gone, and routes of other tables over links that the order leaves alone.
func (r *run) lostOthers(order NetworkConfig, before, now string) []string {
	var lost []string
	there := textLines(now)
	for _, line := range textLines(before) {
		theirs := strings.HasPrefix(line, "rule ") || strings.Contains(line, " table ")
		for _, i := range order.Interfaces {
			named := i.Bond != nil && slices.ContainsFunc(i.Bond.Members, func(m string) bool { return strings.Contains(line, " dev "+m+" ") })
			theirs = theirs && !named && !strings.Contains(line, " dev "+i.Name+" ")
		}
		if theirs && !slices.Contains(there, line) && r.linkOf(line, now) {
			lost = append(lost, line)
		}
	}
	return lost
}

var devOf = regexp.MustCompile(` dev (\S+)`)

// linkOf says whether the link that a line names is still there.
func (r *run) linkOf(line, now string) bool {
	m := devOf.FindStringSubmatch(line)
	return m == nil || strings.Contains(now, "link "+m[1]+" ")
}

// layCables connects three cards here with a switch in another network, where the controller and every gateway are.
func (r *run) layCables() {
	site := exec.CommandContext(context.WithoutCancel(r.t.Context()), "sleep", "600")
	site.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	must(r.t, site.Start())
	r.t.Cleanup(func() {
		_ = site.Process.Kill() // it may have ended
		_ = site.Wait()         // and was killed
	})
	r.site = strconv.Itoa(site.Process.Pid)
	there := "nsenter -n -t " + r.site + " ip "
	lines := []string{there + "link set lo up", there + "link add br0 type bridge", there + "link set br0 up", there + "addr add " + controllerOfRuns + "/32 dev lo"}
	for i := range 3 {
		lines = append(lines,
			fmt.Sprintf("ip link add c%d address 52:54:00:aa:00:0%d type veth peer name p%d netns %s", i, i, i, r.site),
			fmt.Sprintf("%slink set p%d master br0 up", there, i), fmt.Sprintf("%saddr add 10.%d.0.254/24 dev br0", there, i))
	}
	for _, id := range []int{20, 21} {
		lines = append(lines, fmt.Sprintf("%slink add br0.%d link br0 type vlan id %d", there, id, id), fmt.Sprintf("%slink set br0.%d up", there, id),
			fmt.Sprintf("%saddr add 10.%d.0.254/24 dev br0.%d", there, id, id))
	}
	sh(r.t, strings.Join(lines, "\n"))
}

// begin is a network of ours, or of files of somebody else.
func (r *run) begin() {
	if r.rand.IntN(4) == 0 {
		for i := range 2 {
			writeFile(r.t, fmt.Sprintf("/etc/systemd/network/10-c%d.network", i), fmt.Sprintf("[Match]\nName=c%d\n[Network]\nLinkLocalAddressing=no\nAddress=10.%d.0.9/24\n%s",
				i, i, []string{"Gateway=10.0.0.254\n", ""}[i]))
		}
		must(r.t, r.host.reload(r.t.Context(), nil))
		r.until("the files of somebody else do nothing", func() bool {
			text := sh(r.t, "ip addr")
			return strings.Contains(text, "10.0.0.9") && strings.Contains(text, "10.1.0.9")
		})
		return
	}
	must(r.t, r.host.ApplyNetwork(r.t.Context(), Effect{}, r.config(false)))
}

func (r *run) until(what string, fn func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !fn(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal(what)
		}
	}
}

// config is a random configuration. The first interface has the gateway; a bad one leads nowhere.
func (r *run) config(bad bool) NetworkConfig {
	cards := []string{"c0", "c1", "c2"}
	r.rand.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	var c NetworkConfig
	octet := 10 + r.rand.IntN(100)
	net := func(n int) []netip.Prefix { return []netip.Prefix{prefix(fmt.Sprintf("10.%d.0.%d/24", n, octet))} }
	mtu := []int{0, 0, 1400, 1450}[r.rand.IntN(4)]
	if r.rand.IntN(2) == 0 {
		mode := []string{"active-backup", "802.3ad", "balance-xor"}[r.rand.IntN(3)]
		b := &Bond{Members: slices.Clone(cards[:2]), Mode: mode, MIIMon: 100 * time.Millisecond}
		if mode == "802.3ad" {
			b.LACPFast = r.rand.IntN(2) == 0
		}
		c.Interfaces = append(c.Interfaces, Interface{Name: "bond0", Bond: b, Addresses: net(0), MTU: mtu})
		cards = cards[2:]
	} else {
		c.Interfaces = append(c.Interfaces, Interface{Name: cards[0], Addresses: net(0), MTU: mtu})
		cards = cards[1:]
	}
	first := &c.Interfaces[0]
	first.Gateway = netip.MustParseAddr("10.0.0.254")
	if bad {
		first.Addresses, first.Gateway = []netip.Prefix{prefix("10.66.0.7/24")}, netip.MustParseAddr("10.66.0.254")
	}
	if r.rand.IntN(2) == 0 {
		first.Routes = []Route{{Destination: prefix("198.51.100.0/24"), Via: first.Gateway, Metric: uint32(r.rand.IntN(2) * 50)}}
	}
	if r.rand.IntN(2) == 0 && len(cards) > 0 {
		c.Interfaces = append(c.Interfaces, Interface{Name: cards[0], Addresses: net(1)})
	}
	if r.rand.IntN(2) == 0 {
		id := 20 + r.rand.IntN(2)
		c.Interfaces = append(c.Interfaces, Interface{Name: "tag", VLAN: &VLAN{ID: id, Parent: c.Interfaces[0].Name}, Addresses: net(id)})
	}
	return c
}

// order is good in three of four runs.
func (r *run) order() (NetworkConfig, bool) {
	good := r.rand.IntN(4) > 0
	return r.config(!good), good
}

// others adds what Ingot has no part in: rules, tables, daemons' routes, addresses, a VLAN.
func (r *run) others() {
	own := r.ownLinks()
	link := own[r.rand.IntN(len(own))]
	all := []string{
		"ip rule add from 10.99.0.0/16 table 100 priority 1000",
		"ip -6 rule add fwmark 7 table 101 priority 1001",
		"ip route add default via 10.0.0.254 dev " + own[0] + " table 100",
		"ip route add 192.0.2.0/24 dev " + link + " table 102 proto bird",
		"ip route add 192.0.3.0/24 via 10.0.0.254 dev " + own[0] + " proto bird metric 20",
		"ip route add 192.0.4.0/24 dev " + link + " src " + addressOn(r.t, link) + " mtu 1200",
		"ip addr add 10.98.0.1/32 dev " + link,
		"ip link add theirs link " + link + " type vlan id 99; ip addr add 10.97.0.1/24 dev theirs; ip link set theirs up",
		"ip route add 192.0.5.0/24 nexthop via 10.0.0.254 dev " + own[0] + " weight 2 nexthop via 10.0.0.253 dev " + own[0],
	}
	for _, line := range all {
		if r.rand.IntN(3) == 0 {
			sh(r.t, line)
		}
	}
}

var addressLine = regexp.MustCompile(`inet (\S+)/`)

func addressOn(t *testing.T, link string) string {
	t.Helper()
	m := addressLine.FindStringSubmatch(sh(t, "ip -4 addr show dev "+link))
	if m == nil {
		t.Fatalf("%s has no address", link)
	}
	return m[1]
}

// ownLinks are those with an address, that of the gateway first.
func (r *run) ownLinks() []string {
	var out []string
	for _, line := range textLines(sh(r.t, "ip -o -4 addr show scope global")) {
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
	for _, m := range addressLine.FindAllStringSubmatch(sh(r.t, "ip -o -4 addr show scope global"), -1) {
		if !strings.HasPrefix(m[1], "10.9") {
			out = append(out, m[1])
		}
	}
	return out
}

func addressesOf(c NetworkConfig) []string {
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
	sh(r.t, "nsenter -n -t "+r.site+" ip neigh flush all")
	for _, a := range addresses {
		ok := false
		for range 5 {
			if exec.CommandContext(r.t.Context(), "nsenter", "-n", "-t", r.site, "/bin/busybox", "ping", "-c", "1", "-W", "1", a).Run() == nil {
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

var volatile = regexp.MustCompile(`^\d+: |@\S+|valid_lft .*| linkdown| dead|\\`)

// look is the kernel's network as ip(8) shows it, without what changes by itself.
func (r *run) look() string {
	var out []string
	add := func(mark, command string, drop ...string) {
		for _, line := range textLines(sh(r.t, command)) {
			line = strings.Join(strings.Fields(volatile.ReplaceAllString(line, " ")), " ")
			if line == "" || slices.ContainsFunc(drop, func(s string) bool { return strings.Contains(line, s) }) {
				continue
			}
			out = append(out, mark+line+" ")
		}
	}
	for _, line := range textLines(sh(r.t, "ip -o -d link")) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		name = strings.TrimSuffix(name, ":")
		text := "link " + name + " "
		for _, find := range []string{`[<,]UP[,>]`, `mtu \d+`, `master \S+`, `vlan protocol \S+ id \d+`, `bond mode \S+`, `miimon \d+`, `xmit_hash_policy \S+`, `lacp_rate \S+`} {
			text += strings.Trim(regexp.MustCompile(find).FindString(line), "<>,") + " "
		}
		out = append(out, text)
	}
	add("address ", "ip -o addr show", "inet6 fe80", "host lo")
	add("route ", "ip -4 route show table all", "proto kernel", "table local", "proto dhcp")
	add("route ", "ip -6 route show table all", "proto kernel", "table local", "fe80", "proto ra", "multicast")
	add("rule ", "ip rule", "0: from all lookup local", "lookup main", "lookup default")
	add("rule ", "ip -6 rule", "0: from all lookup local", "lookup main")
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// files are those of the network, by name, but for our record of the change itself.
func (r *run) files() string {
	var out []string
	must(r.t, filepath.WalkDir("/etc", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "guard.json") || strings.HasSuffix(path, "/lock") || strings.HasSuffix(path, "filler") {
			return err
		}
		if strings.Contains(path, "/systemd/network/") || strings.Contains(path, "/ingot/") || strings.HasSuffix(path, "resolv.conf") {
			out = append(out, "== "+path, read(r.t, path))
		}
		return nil
	}))
	return strings.Join(out, "\n")
}

// runFault strikes at a time after the change began; lift ends what lasts. came is what somebody else has added meanwhile.
type runFault struct {
	name   string
	at     time.Duration
	holds  bool
	came   []string
	strike func(*os.Process)
	lift   func()
}

func (r *run) fault() *runFault {
	f := &runFault{at: time.Duration(r.rand.IntN(4000)) * time.Millisecond, strike: func(*os.Process) {}, lift: func() {}}
	kill := func(p *os.Process) { _ = p.Kill() } // it may have ended
	foreign := func() string {
		switch r.rand.IntN(3) {
		case 0:
			f.came = []string{"10.96.0.1/32"}
			return "ip addr add 10.96.0.1/32 dev c0"
		case 1:
			f.came = []string{"192.0.9.0/24"}
			return "ip link set c1 up; ip route add 192.0.9.0/24 dev c1 proto 42 || true" // a member of a bond takes none
		}
		f.came = []string{"10.95.0.0/16"}
		return "ip rule add from 10.95.0.0/16 table 77 priority 900"
	}
	switch pick := r.rand.IntN(9); pick {
	case 0:
		f.name = "none"
	case 1, 2:
		f.name, f.strike = "kill", kill
	case 3:
		f.name, f.strike = "networkd restarts", func(*os.Process) { must(r.t, restartNetworkd(r.t.Context(), r.host)) }
	case 4:
		f.name, f.strike = "networkd hangs", func(*os.Process) { must(r.t, unix.Kill(networkdPID(), unix.SIGSTOP)) }
		f.lift = func() { must(r.t, unix.Kill(networkdPID(), unix.SIGCONT)) }
	case 5, 6:
		f.name, f.holds = "read-only", true
		f.strike = func(p *os.Process) {
			must(r.t, unix.Mount("", "/etc", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
			if pick == 6 {
				kill(p)
			}
		}
		f.lift = func() { must(r.t, unix.Mount("", "/etc", "", unix.MS_REMOUNT|unix.MS_BIND, "")) }
	case 7:
		f.name, f.holds = "disk full", true
		f.strike = func(*os.Process) { sh(r.t, "cat /dev/zero >/etc/filler 2>/dev/null || true") }
		f.lift = func() { _ = os.Remove("/etc/filler") } // it may not have come to that
	case 8:
		line := foreign()
		f.name, f.strike = "somebody else: "+line, func(*os.Process) { sh(r.t, line) }
	}
	return f
}

// TestNetworkChange is the process that carries the order out, in the steps of the executor of RECONFIGURE.
func TestNetworkChange(t *testing.T) {
	if os.Getenv("INGOT_NETWORK_CHANGE") != "1" {
		t.Skip("part of TestNetworkRuns")
	}
	h, _ := unguarded(t)
	h.kernel.restart = func(ctx context.Context, _ string) error { return restartNetworkd(ctx, h) }
	var c NetworkConfig
	must(t, json.Unmarshal([]byte(read(t, "/run/order.json")), &c))
	saved, err := h.SaveNetwork(t.Context(), c)
	must(t, err)
	must(t, h.Guard(t.Context(), Guard{CommandID: "c1", Deadline: clock.Boottime() + changeLimit, Network: &saved}))
	err = h.ApplyNetwork(t.Context(), Effect{}, c)
	if err == nil {
		err = proves(t, h, c, &saved)
	}
	if err == nil {
		err = h.CommitGuard(t.Context(), "c1")
	}
	if err != nil {
		fmt.Println("rolling back:", err)
		fmt.Println("rolled back:", h.RollBackGuard(t.Context(), "c1"))
	}
}

func proves(t *testing.T, h *Linux, c NetworkConfig, saved *SavedNetwork) error {
	t.Helper()
	s, err := h.Network(t.Context(), c, saved)
	if err != nil || s.Diff != "" {
		return fmt.Errorf("read back: %w\n%s", err, s.Diff)
	}
	from, err := h.NetworkSource(t.Context(), c, netip.MustParseAddr(controllerOfRuns))
	if err != nil {
		return err
	}
	for range 3 {
		err = exec.CommandContext(t.Context(), "/bin/busybox", "ping", "-c", "1", "-W", "1", "-I", from.String(), controllerOfRuns).Run()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("ping from %s: %w", from, err)
}
