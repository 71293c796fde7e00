package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

func diffText(before, after string) string {
	return textdiff.Unified("before", "after", textdiff.Lines(before), textdiff.Lines(after))
}

// judge holds the end of the run against the promise.
func (r *run) judge(before, filesBefore string, fault *runFault) {
	r.t.Helper()
	g, err := r.host.Guarded(r.t.Context())
	hosttest.Must(r.t, err)
	now := r.look()
	if g != nil && g.State == rollback.GuardCommitted {
		r.tell("committed")
		if fault.drops {
			// A foreign restart of networkd takes cards out of their bond and puts them back, in its own time.
			for end := time.Now().Add(10 * time.Second); len(r.notAsOrdered(now)) > 0 && time.Now().Before(end); now = r.look() {
				<-time.After(200 * time.Millisecond)
			}
		}
		r.failed("committed, and not as ordered", r.notAsOrdered(now))
		if !fault.drops {
			r.failed("committed, and others have lost", r.lostOthers(before, now))
		}
		if !r.reachable(addressesOf(r.change.Network)...) {
			r.t.Errorf("committed, and not reachable:\n%s\n%s", now, r.said.String())
		}
		return
	}
	if g != nil && g.State == rollback.GuardPending {
		r.t.Errorf("the way back does not end: %s\n%s", g.Error, r.said.String())
	}
	r.tell("rolled back")
	if diff := diffText(before, now); diff != "" && !onlyAdds(diff, fault.came) {
		r.t.Errorf("rolled back, and not equal:\n%s\n%s", diff, r.said.String())
	}
	if diff := diffText(filesBefore, r.files()); diff != "" {
		r.t.Errorf("rolled back, and the files are others:\n%s\n%s", diff, r.said.String())
	}
	if !r.reachable(r.ownAddresses()...) {
		r.t.Errorf("rolled back, and not reachable:\n%s\n%s", now, r.said.String())
	}
}

func (r *run) failed(what string, lines []string) {
	r.t.Helper()
	if len(lines) > 0 {
		r.t.Errorf("%s:\n%s\n%s", what, strings.Join(lines, "\n"), r.said.String())
	}
}

// notAsOrdered compares what ip(8) shows with the order.
func (r *run) notAsOrdered(now string) []string {
	var wrong []string
	lines := textdiff.Lines(now)
	want := func(start string, parts ...string) {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, start) &&
				!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(l, p) })
		}) {
			wrong = append(wrong, fmt.Sprintf("no %s… %q", start, parts))
		}
	}
	names := []string{"lo", "c0", "c1", "c2", "theirs", "bonding_masters"}
	for _, i := range r.change.Network.Interfaces {
		names = append(names, i.Name)
		parts := []string{" UP "}
		if i.MTU != 0 {
			parts = append(parts, fmt.Sprintf(" mtu %d ", i.MTU))
		}
		if i.VLAN != nil {
			parts = append(parts, fmt.Sprintf(" id %d ", i.VLAN.ID), " on "+i.VLAN.Parent+" ")
		}
		if i.Bond != nil {
			parts = append(parts, " bond mode "+i.Bond.Mode+" ", fmt.Sprintf(" miimon %d ", i.Bond.MIIMon.Milliseconds()))
			for _, m := range i.Bond.Members {
				want("link "+m+" ", " UP ", " master "+i.Name+" ")
			}
		}
		want("link "+i.Name+" ", parts...)
		for _, a := range i.Addresses {
			want("address "+i.Name+" ", " "+a.String()+" ")
		}
		if i.Gateway.IsValid() {
			want("route default ", " via "+i.Gateway.String()+" ", " dev "+i.Name+" ")
		}
		for _, route := range i.Routes {
			want("route "+route.Destination.String()+" ", " dev "+i.Name+" ")
		}
		for _, l := range lines { // 10.9x are others'
			f := strings.Fields(l)
			if strings.HasPrefix(l, "address "+i.Name+" ") && !strings.HasPrefix(f[3], "10.9") &&
				!slices.Contains(i.Addresses, prefix(f[3])) {
				wrong = append(wrong, "more than ordered: "+l)
			}
		}
	}
	for _, l := range lines {
		if name, ok := strings.CutPrefix(l, "link "); ok && !slices.Contains(names, strings.Fields(name)[0]) {
			wrong = append(wrong, "more than ordered: "+l)
		}
	}
	if f := r.change.Firewall; f != nil {
		want("nft inet ingot ", " policy "+string(f.InputDefault))
	}
	return wrong
}

// onlyAdds reports whether a diff does nothing but add lines that have one of the texts.
func onlyAdds(diff string, texts []string) bool {
	for _, line := range strings.Split(diff, "\n") {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "+++") {
			continue
		}
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") &&
			!slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(line, s) }) {
			return false
		}
	}
	return true
}

// lostOthers are rules and packet filters that are gone, and routes of other tables over links that the order leaves
// alone.
func (r *run) lostOthers(before, now string) []string {
	var lost []string
	there := textdiff.Lines(now)
	for _, line := range textdiff.Lines(before) {
		theirs := strings.HasPrefix(line, "rule ") || strings.Contains(line, " table ") && !strings.HasPrefix(line, "nft ") ||
			strings.HasPrefix(line, "route blackhole ") || strings.HasPrefix(line, "nft ") &&
			!strings.HasPrefix(line, "nft inet ingot ")
		if strings.HasPrefix(line, "route ") {
			for _, i := range r.change.Network.Interfaces {
				named := i.Bond != nil &&
					slices.ContainsFunc(i.Bond.Members, func(m string) bool { return strings.Contains(line, " dev "+m+" ") })
				theirs = theirs && !named && !strings.Contains(line, " dev "+i.Name+" ")
			}
			theirs = theirs && linkOf(line, now) && (!strings.Contains(line, " via ") || hasNetworkOf(line, now))
		}
		if theirs && !slices.Contains(there, line) {
			lost = append(lost, line)
		}
	}
	return lost
}

// hasNetworkOf reports whether the link that a line names still has an address in the network of the gateway.
func hasNetworkOf(line, now string) bool {
	m := regexp.MustCompile(` via (\d+\.\d+\.\d+\.)\d+ dev (\S+)`).FindStringSubmatch(line)
	return m == nil || strings.Contains(now, "address "+m[2]+" inet "+m[1])
}

var devOf = regexp.MustCompile(` dev (\S+)`)

// linkOf reports whether the link that a line names is still there, and up.
func linkOf(line, now string) bool {
	m := devOf.FindStringSubmatch(line)
	return m == nil || strings.Contains(now, "link "+m[1]+" UP ")
}

var volatile = regexp.MustCompile(`^\d+: |@\S+|valid_lft .*| linkdown| dead| tentative| \[detached\]|\\`)

// look is the kernel's network as ip(8) shows it, without what changes by itself.
func (r *run) look() string {
	var out []string
	add := func(mark, command string, drop ...string) {
		for _, line := range textdiff.Lines(hosttest.Shell(r.t, command)) {
			line = strings.Join(strings.Fields(volatile.ReplaceAllString(line, " ")), " ")
			if line == "" || slices.ContainsFunc(drop, func(s string) bool { return strings.Contains(line, s) }) {
				continue
			}
			out = append(out, mark+line+" ")
		}
	}
	for _, line := range textdiff.Lines(hosttest.Shell(r.t, "ip -o -d link")) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		name = strings.TrimSuffix(name, ":")
		text := "link " + name + " "
		for _, find := range []string{`[<,]UP[,>]`, `mtu \d+`, `master \S+`, `vlan protocol \S+ id \d+`, `bond mode \S+`,
			`miimon \d+`, `xmit_hash_policy \S+`, `lacp_rate \S+`} {
			text += strings.Trim(regexp.MustCompile(find).FindString(line), "<>,") + " "
		}
		if parent := regexp.MustCompile(`@(\S+): .*vlan protocol`).FindStringSubmatch(line); parent != nil {
			text += "on " + parent[1] + " "
		}
		out = append(out, text)
	}
	add("address ", "ip -o addr show", "inet6 fe80", "host lo")
	add("route ", "ip -4 route show table all", "proto kernel", "table local", "proto dhcp")
	add("route ", "ip -6 route show table all", "proto kernel", "table local", "fe80", "proto ra", "multicast", "anycast")
	add("rule ", "ip rule", "0: from all lookup local", "lookup main", "lookup default")
	add("rule ", "ip -6 rule", "0: from all lookup local", "lookup main")
	for _, table := range textdiff.Lines(hosttest.Shell(r.t, "nft list tables")) {
		out = append(
			out,
			"nft "+strings.TrimPrefix(strings.Join(strings.Fields(hosttest.Shell(r.t, "nft list "+table)), " "), "table "),
		)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// files are those of the network, by name, but for our record of the change itself.
func (r *run) files() string {
	var out []string
	hosttest.Must(r.t, filepath.WalkDir("/etc", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains([]string{"guard.json", "lock", "filler"}, d.Name()) {
			return err
		}
		if strings.Contains(path, "/systemd/network/") || strings.Contains(path, "/ingot/") ||
			strings.HasSuffix(path, "resolv.conf") {
			out = append(out, "== "+path, hosttest.ReadFile(r.t, path))
		}
		return nil
	}))
	return strings.Join(out, "\n")
}
