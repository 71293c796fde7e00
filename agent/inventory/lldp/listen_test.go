package lldp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/internal/task"
)

// cable makes two interfaces that are plugged into each other.
func cable(t *testing.T, here, there string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = here
	mac, err := net.ParseMAC("02:00:5e:00:53:01")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: there, PeerHardwareAddr: mac}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{here, there} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARealNeighbourIsHeard: Debian's lldpd is the switch.
func TestARealNeighbourIsHeard(t *testing.T) {
	lldpd, err := exec.LookPath("lldpd")
	if err != nil {
		if lldpd = "/usr/sbin/lldpd"; !exists(lldpd) {
			t.Fatal("needs lldpd: scripts/install-deps test")
		}
	}
	if !hosttest.InNamespace(t) {
		return
	}
	if err := unix.Sethostname([]byte("leaf1")); err != nil {
		t.Fatal(err)
	}
	cable(t, "here", "there")
	link, err := netlink.LinkByName("there")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1),
		Mask: net.CIDRMask(24, 32)}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// It drops its rights, and opens its socket again.
	dir, err := os.MkdirTemp("", "lldpd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, lldpd, "-d", "-I", "there", "-u", filepath.Join(dir, "socket"))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heard := Listen(t.Context(), []string{"here", "nowhere"}, 8*time.Second)
	cancel()
	_ = cmd.Wait() // killed
	got := heard.Neighbours["here"]
	if len(got) != 1 || got[0].Chassis != "02:00:5e:00:53:01" || got[0].PortDescription != "there" ||
		!strings.HasPrefix(got[0].System, "leaf1") {
		t.Errorf("heard %+v, lldpd says %s", heard, said.String())
	}
	if heard.Faults["nowhere"] == "" || heard.Neighbours["nowhere"] != nil {
		t.Errorf("an interface that is not there: %+v", heard)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A neighbour that floods one interface ends the listening there, and takes nothing from another.
func TestAFloodOnOneInterface(t *testing.T) {
	if !hosttest.InNamespace(t) {
		return
	}
	cable(t, "here", "there")
	cable(t, "other", "calm")
	done := make(chan Heard, 1)
	began := time.Now()
	task.Background("listen", func() { done <- Listen(t.Context(), []string{"here", "other"}, 3*time.Second) })
	for opened(t) < 2 {
		<-time.After(10 * time.Millisecond)
	}
	send(t, "calm", frame(named("leaf2", "1")))
	for i := range 3 * mostFrames {
		send(t, "there", frame(named(fmt.Sprintf("flood-%d", i), "1")))
	}
	heard := <-done
	if n := len(heard.Neighbours["here"]); n != MostNeighbours || !strings.Contains(heard.Faults["here"], "frames came") {
		t.Errorf("flooded: %d neighbours, %q", n, heard.Faults["here"])
	}
	if got := heard.Neighbours["other"]; len(got) != 1 || got[0].Chassis != "leaf2" || heard.Faults["other"] != "" {
		t.Errorf("beside it: %+v, %q", got, heard.Faults["other"])
	}
	if d := time.Since(began); d < 3*time.Second || d > 30*time.Second {
		t.Errorf("listened for %v", d)
	}
}

// opened counts the sockets for LLDP in this namespace (packet(7), /proc/net/packet).
func opened(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/packet")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), " 88cc ")
}

var senders = map[string]*packet.Conn{}

func send(t *testing.T, from string, f []byte) {
	t.Helper()
	if senders[from] == nil {
		ifi, err := net.InterfaceByName(from)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := packet.Listen(ifi, packet.Raw, EtherType, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		senders[from] = conn
	}
	if _, err := senders[from].WriteTo(f, &packet.Addr{HardwareAddr: groups[0][:]}); err != nil {
		t.Fatal(err)
	}
}

func TestListeningEndsWithItsContext(t *testing.T) {
	if !hosttest.InNamespace(t) {
		return
	}
	cable(t, "here", "there")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	heard := Listen(ctx, []string{"here"}, time.Minute)
	if d := time.Since(began); d > 10*time.Second || len(heard.Neighbours["here"]) != 0 {
		t.Errorf("%v, %+v", d, heard)
	}
}
