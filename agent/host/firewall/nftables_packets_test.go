package firewall

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

func TestFirewallOnRealPackets(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip tool to lay a cable between two namespaces")
	}
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer(t)
	for _, port := range []int{22, 443, 500, 505, 511, 600, 25, 587} {
		hosttest.Listen(t, port)
	}
	if !hosttest.Tries(true, func() bool { return p.Reaches(22) }) || !hosttest.CanDial("127.0.0.1:25") {
		t.Fatal("without a policy the ports are not reachable")
	}
	h := &Nftables{}
	rules := Policy{
		Generation: 1, InputDefault: VerdictDrop,
		Allow: []AllowRule{
			{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("10.9.0.0/24")},
			{Protocol: "tcp", FromPort: 443, Source: netip.MustParsePrefix("10.8.0.0/16")},
			{Protocol: "tcp", FromPort: 500, ToPort: 510},
			{Protocol: "udp", FromPort: 600},
		},
		Controllers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:587")},
	}
	mustApply(t, h, rules)
	for port, want := range map[int]bool{22: true, 443: false, 500: true, 505: true, 511: false, 600: false} {
		if got := hosttest.Tries(want, func() bool { return p.Reaches(port) }); got != want {
			t.Errorf("port %d reached: %v, want %v", port, got, want)
		}
	}
	if hosttest.CanDial("127.0.0.1:25") {
		t.Error("smtp goes out though it is not allowed")
	}
	if !hosttest.CanDial("127.0.0.1:587") {
		t.Error("the controller, on a port of smtp, is not reached")
	}

	open := rules
	open.Generation, open.SMTPEgressAllowed, open.InputDefault = 2, true, VerdictAccept
	open.RateLimits = []RateLimit{{Protocol: "tcp", FromPort: 22, PerSecond: 1, Burst: 1}}
	mustApply(t, h, open)
	if !hosttest.CanDial("127.0.0.1:25") || !hosttest.Tries(true, func() bool { return p.Reaches(443) }) {
		t.Error("the open policy is not open")
	}
	if burst := dialBurst(p); burst == 0 || burst == 20 {
		t.Errorf("%d of 20 connections at once got past a limit of 1 per second", burst)
	}
}

// dialBurst opens 20 connections in one go and counts those that were answered at once.
func dialBurst(p hosttest.Peer) int {
	script := `for i in $(seq 20); do (timeout 0.4 bash -c "exec 3<>/dev/tcp/10.9.0.1/22" 2>/dev/null && echo ok) & done; wait`
	out, err := exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "bash", "-c", script).Output()
	if err != nil {
		p.T.Fatal(err)
	}
	return strings.Count(string(out), "ok")
}
