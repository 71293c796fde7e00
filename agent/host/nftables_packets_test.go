package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

// peer is a second network namespace at the other end of a cable: 10.9.0.1 is here, 10.9.0.2 is there.
type peer struct {
	t   *testing.T
	pid string
}

func newPeer(t *testing.T) peer {
	t.Helper()
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()         // and was killed
	})
	p := peer{t: t, pid: strconv.Itoa(other.Process.Pid)}
	p.run("ip link set lo up")
	p.run("ip link add here type veth peer name there netns " + p.pid)
	p.run("ip addr add 10.9.0.1/24 dev here")
	p.run("ip link set here up")
	p.run("nsenter -n -t " + p.pid + " ip addr add 10.9.0.2/24 dev there")
	p.run("nsenter -n -t " + p.pid + " ip link set there up")
	return p
}

func (p peer) run(line string) {
	p.t.Helper()
	args := strings.Fields(line)
	if out, err := exec.CommandContext(p.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// reaches opens a connection from the other side to a port here. A dropped one takes a second to be sure.
func (p peer) reaches(port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/10.9.0.1/%d", port)
	return exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "timeout", "1", "bash", "-c",
		dial).Run() == nil
}

// listen accepts connections on a port here, in all of them the same way: it hangs up.
func listen(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	g, _ := task.New(context.WithoutCancel(t.Context()))
	g.Go("accept", func(context.Context) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil // closed
			}
			_ = c.Close() // the caller only wants to know that it got here
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		_ = g.Wait()
	})
}

func canDial(address string) bool {
	c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
	if err != nil {
		return false
	}
	_ = c.Close() // reached
	return true
}

// tried gives a connection that should be made some tries, because a busy machine is slow, and one that should not a
// single one, because that costs its time-out.
func tried(want bool, dial func() bool) bool {
	made := dial()
	for i := 0; want && !made && i < 5; i++ {
		made = dial()
	}
	return made
}

func TestFirewallOnRealPackets(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip tool to lay a cable between two namespaces")
	}
	if !inNetns(t) {
		return
	}
	p := newPeer(t)
	for _, port := range []int{22, 443, 500, 505, 511, 600, 25, 587} {
		listen(t, port)
	}
	if !tried(true, func() bool { return p.reaches(22) }) || !canDial("127.0.0.1:25") {
		t.Fatal("without a policy the ports are not reachable")
	}
	h := New(Config{})
	rules := FirewallPolicy{
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
		if got := tried(want, func() bool { return p.reaches(port) }); got != want {
			t.Errorf("port %d reached: %v, want %v", port, got, want)
		}
	}
	if canDial("127.0.0.1:25") {
		t.Error("smtp goes out though it is not allowed")
	}
	if !canDial("127.0.0.1:587") {
		t.Error("the controller, on a port of smtp, is not reached")
	}

	open := rules
	open.Generation, open.SMTPEgressAllowed, open.InputDefault = 2, true, VerdictAccept
	open.RateLimits = []RateLimit{{Protocol: "tcp", FromPort: 22, PerSecond: 1, Burst: 1}}
	mustApply(t, h, open)
	if !canDial("127.0.0.1:25") || !tried(true, func() bool { return p.reaches(443) }) {
		t.Error("the open policy is not open")
	}
	if burst := dialBurst(p); burst == 0 || burst == 20 {
		t.Errorf("%d of 20 connections at once got past a limit of 1 per second", burst)
	}
}

// dialBurst opens 20 connections in one go and counts those that were answered at once.
func dialBurst(p peer) int {
	script := `for i in $(seq 20); do (timeout 0.4 bash -c "exec 3<>/dev/tcp/10.9.0.1/22" 2>/dev/null && echo ok) & done; wait`
	out, err := exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "bash", "-c", script).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Count(string(out), "ok")
}
