package host

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	listenVariable = "INGOT_TEST_LISTEN"
	dialVariable   = "INGOT_TEST_DIAL"
)

// TestMain lets this program be the other side of a cable too. It accepts connections on ports, says ready, and sends
// back each line that it gets, until it is killed; or it says how many of 30 connections were made at once.
func TestMain(m *testing.M) {
	if ports := os.Getenv(listenVariable); ports != "" {
		echo(strings.Split(ports, ","))
		return
	}
	if address := os.Getenv(dialVariable); address != "" {
		fmt.Println(dialAtOnce(address))
		return
	}
	os.Exit(m.Run())
}

// dialAtOnce gives up before TCP sends a second SYN, after a second (RFC 6298).
func dialAtOnce(address string) int {
	var made atomic.Int32
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if c, err := net.DialTimeout("tcp", address, 700*time.Millisecond); err == nil {
				made.Add(1)
				_ = c.Close() // made
			}
		})
	}
	all.Wait()
	return int(made.Load())
}

func echo(ports []string) {
	for _, p := range ports {
		l, err := net.Listen("tcp", "[::]:"+p) // and IPv4
		if err != nil {
			fmt.Println(err)
			return
		}
		go serveLines(l)
	}
	fmt.Println("ready")
	select {}
}

func serveLines(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			for in := bufio.NewScanner(c); in.Scan(); {
				fmt.Fprintln(c, in.Text())
			}
		}()
	}
}

// echoes starts the other side on its ports, in its own namespace or, with at empty, in ours.
func echoes(t *testing.T, at, ports string) {
	t.Helper()
	args := []string{os.Args[0]}
	if at != "" {
		args = append([]string{"nsenter", "-n", "-t", at}, args...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), listenVariable+"="+ports)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // and was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the other side says %q, %v", line, err)
	}
}

// newPeer6 is newPeer with fd00::1 here and fd00::2 there.
func newPeer6(t *testing.T) peer {
	t.Helper()
	p := newPeer(t)
	p.run("ip addr add fd00::1/64 dev here nodad")
	p.run("nsenter -n -t " + p.pid + " ip addr add fd00::2/64 dev there nodad")
	p.run("nsenter -n -t " + p.pid + " ip link set lo up") // Go takes a system without ::1 for one without IPv6
	return p
}

// mailPorts are those of RFC 5321, RFC 8314 and RFC 6409; each has neighbours that are none.
var mailPorts = map[int]bool{24: false, 25: true, 26: false, 464: false, 465: true, 466: false, 586: false, 587: true,
	588: false}

func TestMailIsKeptInAndNothingElse(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	var ports []string
	for port := range mailPorts {
		ports = append(ports, fmt.Sprint(port))
	}
	echoes(t, p.pid, strings.Join(ports, ","))
	h := New(Config{})
	for generation, c := range []struct {
		smtp    bool
		verdict Verdict
	}{{false, VerdictAccept}, {false, VerdictDrop}, {true, VerdictAccept}, {true, VerdictDrop}} {
		mustApply(t, h, FirewallPolicy{Generation: uint64(generation) + 1, InputDefault: c.verdict,
			SMTPEgressAllowed: c.smtp})
		for port, mail := range mailPorts {
			for _, there := range []string{"10.9.0.2", "fd00::2"} {
				want := c.smtp || !mail
				if got := tried(want, func() bool { return canDial(net.JoinHostPort(there, fmt.Sprint(port))) }); got != want {
					t.Errorf("smtp_egress_allowed=%t, input %s: %s port %d reached: %t", c.smtp, c.verdict, there, port, got)
				}
			}
		}
	}
}

func TestAllowListsHoldInBothFamilies(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	echoes(t, "", "22,80,443,8080")
	mustApply(t, New(Config{}), FirewallPolicy{Generation: 1, InputDefault: VerdictDrop, Allow: []AllowRule{
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
		if got := tried(c.want, func() bool { return p.dials(c.here, c.port) }); got != c.want {
			t.Errorf("%s port %d reached: %t", c.here, c.port, got)
		}
	}
	if !tried(true, func() bool { return p.pings("10.9.0.1") }) ||
		!tried(true, func() bool { return p.pings("fd00::1") }) {
		t.Error("ICMP is not let in")
	}
}

// dials opens a connection from the other side.
func (p peer) dials(here string, port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", here, port)
	return exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "timeout", "0.7", "bash", "-c",
		dial).Run() == nil
}

func (p peer) pings(here string) bool {
	return exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "busybox", "ping", "-c", "1", "-W", "1",
		here).Run() == nil
}

func TestEstablishedFlowsOutliveAReplacement(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	echoes(t, "", "22")
	echoes(t, p.pid, "25")
	h := New(Config{})
	mustApply(t, h, FirewallPolicy{
		Generation: 1, InputDefault: VerdictDrop, SMTPEgressAllowed: true,
		Allow: []AllowRule{{Protocol: "tcp", FromPort: 22}},
	})
	inbound := p.talk(
		"exec 3<>/dev/tcp/10.9.0.1/22; while read -r line; do echo \"$line\" >&3; read -r back <&3; echo \"$back\"; done")
	outbound, err := net.Dial("tcp", "[fd00::2]:25")
	must(t, err)
	t.Cleanup(func() { _ = outbound.Close() })
	for generation, denied := uint64(2), false; generation < 6; generation, denied = generation+1, true {
		if got := inbound(fmt.Sprint("in ", generation)); got != fmt.Sprint("in ", generation) {
			t.Fatalf("after generation %d the inbound flow gives %q", generation-1, got)
		}
		if got := sayOver(t, outbound, fmt.Sprint("out ", generation)); got != fmt.Sprint("out ", generation) {
			t.Fatalf("after generation %d the outbound flow gives %q", generation-1, got)
		}
		in := tried(!denied, func() bool { return p.dials("10.9.0.1", 22) })
		if out := tried(!denied, func() bool { return canDial("[fd00::2]:25") }); in == denied || out == denied {
			t.Fatalf("after generation %d: new flows denied: want %t", generation-1, denied)
		}
		mustApply(t, h, FirewallPolicy{Generation: generation, InputDefault: VerdictDrop})
	}
}

// talk runs a script on the other side and gives a way to say a line to it and hear one back.
func (p peer) talk(script string) func(string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "bash", "-c", script)
	in, err := cmd.StdinPipe()
	must(p.t, err)
	out, err := cmd.StdoutPipe()
	must(p.t, err)
	must(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // and was killed
	})
	back := bufio.NewReader(out)
	return func(line string) string {
		if _, err := fmt.Fprintln(in, line); err != nil {
			return err.Error()
		}
		got, err := back.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(got)
	}
}

func sayOver(t *testing.T, c net.Conn, line string) string {
	t.Helper()
	must(t, c.SetDeadline(time.Now().Add(2*time.Second)))
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
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	echoes(t, "", "22,80")
	mustApply(t, New(Config{}), FirewallPolicy{
		Generation: 1, InputDefault: VerdictAccept,
		RateLimits: []RateLimit{{Protocol: "tcp", FromPort: 22, PerSecond: 2, Burst: 6}},
	})
	// All connections are tried at once and without a second try: 6 pass, and what is earned while they come.
	if got := dialMany(p, 22); got < 6 || got > 12 {
		t.Errorf("%d of 30 connections at once got past a burst of 6 and 2 a second", got)
	}
	if got := dialMany(p, 80); got < 25 {
		t.Errorf("%d of 30 connections reached a port without a limit", got)
	}
}

// dialMany counts which of 30 connections from the other side are made at once.
func dialMany(p peer, port int) int {
	cmd := exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=10.9.0.1:%d", dialVariable, port))
	out, err := cmd.Output()
	must(p.t, err)
	made, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must(p.t, err)
	return made
}
