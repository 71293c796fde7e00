// Package hosttest runs tests in network namespaces and virtual machines of their own.
package hosttest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

const netnsVariable = "INGOT_TEST_IN_NETNS"

// InNamespace runs the calling test again in a network namespace and with a host name of its own, in another process.
// It returns true in there; the caller returns when it is false. Our table must not be tried out on the machine's own
// network.
func InNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(netnsVariable) == "1" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), netnsVariable+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUTS, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	return false
}

// Peer is a second network namespace at the other end of a cable: 10.9.0.1 is here, 10.9.0.2 is there.
type Peer struct {
	T   *testing.T
	PID string
}

func NewPeer(t *testing.T) Peer {
	t.Helper()
	other := exec.CommandContext(t.Context(), "sleep", "600") // longer than any test
	other.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()         // and was killed
	})
	p := Peer{T: t, PID: strconv.Itoa(other.Process.Pid)}
	p.Run("ip link set lo up")
	p.Run("ip link add here type veth peer name there netns " + p.PID)
	p.Run("ip addr add 10.9.0.1/24 dev here")
	p.Run("ip link set here up")
	p.Run("nsenter -n -t " + p.PID + " ip addr add 10.9.0.2/24 dev there")
	p.Run("nsenter -n -t " + p.PID + " ip link set there up")
	return p
}

func (p Peer) Run(line string) {
	p.T.Helper()
	args := strings.Fields(line)
	if out, err := exec.CommandContext(p.T.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		p.T.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// Reaches opens a connection from the other side to a port here. A dropped one takes a second to be sure.
func (p Peer) Reaches(port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/10.9.0.1/%d", port)
	return exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "timeout", "1", "bash", "-c",
		dial).Run() == nil
}

// Listen accepts connections on a port here, in all of them the same way: it hangs up.
func Listen(t *testing.T, port int) {
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

func CanDial(address string) bool {
	c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
	if err != nil {
		return false
	}
	_ = c.Close() // reached
	return true
}

// Tries dials up to six times where a connection is expected, because a busy machine is slow. Otherwise it dials once,
// because each try costs its time-out.
func Tries(want bool, dial func() bool) bool {
	made := dial()
	for i := 0; want && !made && i < 5; i++ {
		made = dial()
	}
	return made
}

const (
	listenVariable = "INGOT_TEST_LISTEN"
	DialVariable   = "INGOT_TEST_DIAL"
)

// Main lets this program be the other side of a cable too. It accepts connections on ports, prints ready, and echoes
// each line that it gets, until it is killed. Or it prints how many of 30 connections were made at once.
func Main(m *testing.M) {
	if ports := os.Getenv(listenVariable); ports != "" {
		echo(strings.Split(ports, ","))
		return
	}
	if address := os.Getenv(DialVariable); address != "" {
		fmt.Println(dialAtOnce(address))
		return
	}
	os.Exit(m.Run())
}

// dialAtOnce times out before TCP sends a second SYN, after a second (RFC 6298).
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
	g, _ := task.New(context.Background())
	for _, p := range ports {
		l, err := net.Listen("tcp", "[::]:"+p) // and IPv4
		if err != nil {
			fmt.Println(err)
			return
		}
		g.Go("accept", func(context.Context) error { return serveLines(g, l) })
	}
	fmt.Println("ready")
	fmt.Println(g.Wait())
}

func serveLines(g *task.Group, l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		g.Go("echo", func(context.Context) error {
			for in := bufio.NewScanner(c); in.Scan(); {
				fmt.Fprintln(c, in.Text())
			}
			return nil
		})
	}
}

// Echo starts the other side on its ports, in its own namespace or, with at empty, in ours.
func Echo(t *testing.T, at, ports string) {
	t.Helper()
	args := []string{os.Args[0]}
	if at != "" {
		args = append([]string{"nsenter", "-n", "-t", at}, args...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), listenVariable+"="+ports)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // and was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the other side says %q, %v", line, err)
	}
}

// NewPeer6 is NewPeer with fd00::1 here and fd00::2 there.
func NewPeer6(t *testing.T) Peer {
	t.Helper()
	p := NewPeer(t)
	p.Run("ip addr add fd00::1/64 dev here nodad")
	p.Run("nsenter -n -t " + p.PID + " ip addr add fd00::2/64 dev there nodad")
	p.Run("nsenter -n -t " + p.PID + " ip link set lo up") // Go takes a system without ::1 for one without IPv6
	return p
}

// Dials opens a connection from the other side.
func (p Peer) Dials(here string, port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", here, port)
	return exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "timeout", "0.7", "bash", "-c",
		dial).Run() == nil
}

func (p Peer) Pings(here string) bool {
	return exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "busybox", "ping", "-c", "1", "-W", "1",
		here).Run() == nil
}

// Talk runs a script on the other side and returns a function that writes a line to it and reads one back.
func (p Peer) Talk(script string) func(string) string {
	p.T.Helper()
	cmd := exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "bash", "-c", script)
	in, err := cmd.StdinPipe()
	Must(p.T, err)
	out, err := cmd.StdoutPipe()
	Must(p.T, err)
	Must(p.T, cmd.Start())
	p.T.Cleanup(func() {
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

// ReachesAt opens a connection from this side to an address and port.
func (p Peer) ReachesAt(address string, port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", address, port)
	return exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "timeout", "0.7", "bash", "-c",
		dial).Run() == nil
}

// There runs a line of a shell on the other side.
func (p Peer) There(line string) string {
	p.T.Helper()
	out, err := exec.CommandContext(p.T.Context(), "nsenter", "-n", "-t", p.PID, "sh", "-ec", line).CombinedOutput()
	if err != nil {
		p.T.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// Background runs a program on the other side until the test ends.
func (p Peer) Background(args ...string) {
	p.T.Helper()
	cmd := exec.CommandContext(p.T.Context(), "nsenter", append([]string{"-n", "-t", p.PID}, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	Must(p.T, cmd.Start())
	p.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // and was killed
	})
}

func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func Shell(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func ReadFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	Must(t, err)
	return string(b)
}

func WriteFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
