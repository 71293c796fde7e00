package firewall

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// mailPorts are those of RFC 5321, RFC 8314 and RFC 6409; each has neighbours that are none.
var mailPorts = map[int]bool{24: false, 25: true, 26: false, 464: false, 465: true, 466: false, 586: false, 587: true,
	588: false}

func TestMailIsKeptInAndNothingElse(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	var ports []string
	for port := range mailPorts {
		ports = append(ports, fmt.Sprint(port))
	}
	hosttest.Echo(t, p.PID, strings.Join(ports, ","))
	h := &Nftables{}
	for generation, c := range []struct {
		smtp    bool
		verdict Verdict
	}{{false, VerdictAccept}, {false, VerdictDrop}, {true, VerdictAccept}, {true, VerdictDrop}} {
		mustApply(t, h, Policy{Generation: uint64(generation) + 1, InputDefault: c.verdict,
			SMTPEgressAllowed: c.smtp})
		for port, mail := range mailPorts {
			for _, there := range []string{"10.9.0.2", "fd00::2"} {
				want := c.smtp || !mail
				if got := hosttest.Tries(
					want,
					func() bool { return hosttest.CanDial(net.JoinHostPort(there, fmt.Sprint(port))) },
				); got != want {
					t.Errorf("smtp_egress_allowed=%t, input %s: %s port %d reached: %t", c.smtp, c.verdict, there, port, got)
				}
			}
		}
	}
}

func TestAllowListsHoldInBothFamilies(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	hosttest.Echo(t, "", "22,80,443,8080")
	mustApply(t, &Nftables{}, Policy{Generation: 1, InputDefault: VerdictDrop, Allow: []AllowRule{
		{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("10.9.0.0/24")},
		{Protocol: "tcp", FromPort: 443, Source: netip.MustParsePrefix("fd00::/64")},
		{Protocol: "tcp", FromPort: 80},
	}})
	for _, c := range []struct {
		here string
		port int
		want bool
	}{
		{"10.9.0.1", 22, true}, {"fd00::1", 22, false},
		{"10.9.0.1", 443, false}, {"fd00::1", 443, true},
		{"10.9.0.1", 80, true}, {"fd00::1", 80, true},
		{"10.9.0.1", 8080, false}, {"fd00::1", 8080, false},
	} {
		if got := hosttest.Tries(c.want, func() bool { return p.Dials(c.here, c.port) }); got != c.want {
			t.Errorf("%s port %d reached: %t", c.here, c.port, got)
		}
	}
	if !hosttest.Tries(true, func() bool { return p.Pings("10.9.0.1") }) ||
		!hosttest.Tries(true, func() bool { return p.Pings("fd00::1") }) {
		t.Error("ICMP is not let in")
	}
}

func TestEstablishedFlowsOutliveAReplacement(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	hosttest.Echo(t, "", "22")
	hosttest.Echo(t, p.PID, "25")
	h := &Nftables{}
	mustApply(t, h, Policy{
		Generation: 1, InputDefault: VerdictDrop, SMTPEgressAllowed: true,
		Allow: []AllowRule{{Protocol: "tcp", FromPort: 22}},
	})
	inbound := p.Talk(
		"exec 3<>/dev/tcp/10.9.0.1/22; while read -r line; do echo \"$line\" >&3; read -r back <&3; echo \"$back\"; done")
	outbound, err := net.Dial("tcp", "[fd00::2]:25")
	hosttest.Must(t, err)
	t.Cleanup(func() { _ = outbound.Close() })
	for generation, denied := uint64(2), false; generation < 6; generation, denied = generation+1, true {
		if got := inbound(fmt.Sprint("in ", generation)); got != fmt.Sprint("in ", generation) {
			t.Fatalf("after generation %d the inbound flow gives %q", generation-1, got)
		}
		if got := sayOver(t, outbound, fmt.Sprint("out ", generation)); got != fmt.Sprint("out ", generation) {
			t.Fatalf("after generation %d the outbound flow gives %q", generation-1, got)
		}
		in := hosttest.Tries(!denied, func() bool { return p.Dials("10.9.0.1", 22) })
		if out := hosttest.Tries(
			!denied,
			func() bool { return hosttest.CanDial("[fd00::2]:25") },
		); in == denied ||
			out == denied {
			t.Fatalf("after generation %d: new flows denied: want %t", generation-1, denied)
		}
		mustApply(t, h, Policy{Generation: generation, InputDefault: VerdictDrop})
	}
}

func sayOver(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	hosttest.Must(t, c.SetDeadline(time.Now().Add(2*time.Second)))
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err.Error()
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(got)
}

func TestRateLimitsLimitTheirPortAndNoOther(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	hosttest.Echo(t, "", "22,80")
	mustApply(t, &Nftables{}, Policy{
		Generation: 1, InputDefault: VerdictAccept,
		RateLimits: []RateLimit{{Protocol: "tcp", FromPort: 22, PerSecond: 2, Burst: 6}},
	})
	// All connections are tried at once and without a second try: 6 pass, and those that are earned while they come.
	if got := dialMany(p, 22); got < 6 || got > 12 {
		t.Errorf("%d of 30 connections at once got past a burst of 6 and 2 a second", got)
	}
	if got := dialMany(p, 80); got < 25 {
		t.Errorf("%d of 30 connections reached a port without a limit", got)
	}
}

// dialMany counts which of 30 connections from the other side are made at once.
func dialMany(p hosttest.Peer, port int) int {
	cmd := exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=10.9.0.1:%d", hosttest.DialVariable, port))
	out, err := cmd.Output()
	hosttest.Must(p.T, err)
	made, err := strconv.Atoi(strings.TrimSpace(string(out)))
	hosttest.Must(p.T, err)
	return made
}
