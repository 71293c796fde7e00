package network_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/network"
)

func TestMain(m *testing.M) {
	if err := network.BecomeRoot(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func namespace(t *testing.T) *network.Namespace {
	t.Helper()
	ns, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func devices(t *testing.T, ns *network.Namespace) []string {
	t.Helper()
	var names []string
	err := ns.Do(func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestASegmentJoinsNamespaces: two cards on one switch reach each other, and no others do.
func TestASegmentJoinsNamespaces(t *testing.T) {
	t.Parallel()
	lab, other := namespace(t), namespace(t)
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	sw, err := lab.Switch("sw0")
	if err != nil {
		t.Fatal(err)
	}
	must(t, sw.Card(lab, "site0", netip.MustParsePrefix("10.99.0.1/24")))
	must(t, sw.Card(other, "eth0", netip.MustParsePrefix("10.99.0.2/24")))
	must(t, sw.Tap("tap0"))
	l, err := lab.Listen("10.99.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	task.Background("answer", func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here") // the reader reports a missing text
			c.Close()
		}
	})
	c, err := other.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(c); err != nil || string(said) != "here" {
		t.Errorf("read %q, %v", said, err)
	}
	must(t, sw.Unplug("p-eth0"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := other.Dial(ctx, l.Addr().String()); err == nil {
		t.Error("a card that is not plugged in reaches somebody")
	}
	must(t, sw.Plug("p-eth0"))
	if _, err := other.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Errorf("after plugging in: %v", err)
	}
	if got := strings.Join(devices(t, lab), " "); got != "lo sw0 p-site0 site0 p-eth0 tap0" &&
		!strings.Contains(got, "tap0") {
		t.Errorf("devices %s", got)
	}
	if after, err := net.Interfaces(); err != nil || len(after) != len(before) {
		t.Errorf("the host's devices went from %d to %d (%v)", len(before), len(after), err)
	}
}

func TestProgramsRunInside(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	out, err := ns.Command(t.Context(), "cat", "/proc/self/net/dev").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(out), ":") != 1 || !strings.Contains(string(out), "lo:") {
		t.Errorf("a program sees\n%s", out)
	}
}

// TestTunnelsLeadInAndOut: a listener inside reaches a server outside, until it leads nowhere.
func TestTunnelsLeadInAndOut(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	task.Background("echo", func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			task.Background("echo", func() {
				_, _ = io.Copy(c, c) // ends with the connection
				c.Close()
			})
		}
	})
	in, err := ns.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inner := network.NewTunnel(in, network.ToHost(echo.Addr().String()))
	out, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	outer := network.NewTunnel(out, ns.Into(in.Addr().String()))

	c := talk(t, out.Addr().String())
	inner.Retarget(nil)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives the tunnel's target")
	}
	again, err := net.Dial("tcp", out.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel that leads nowhere says something")
	}
	inner.Retarget(network.ToHost(echo.Addr().String()))
	talk(t, out.Addr().String())
	must(t, outer.Close())
	must(t, inner.Close())
	testkit.Eventually(t, testPatience, func() bool {
		_, err := ns.Dial(context.Background(), in.Addr().String())
		return err != nil
	}, "a closed tunnel accepts")
}

func talk(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Fatalf("read %q, %v", got, err)
	}
	return c
}

const testPatience = 10 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
