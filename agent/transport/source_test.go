package transport

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNameServersAreThoseOfNow(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 192.0.2.1\nsearch example.org\nnameserver 192.0.2.2\nnameserver\t2001:db8::1 # " +
		"second\nnameserver nonsense\nnameserver\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	now := nameServers(file)
	if want := []string{"192.0.2.2:53", "[2001:db8::1]:53"}; !slices.Equal(now, want) {
		t.Fatalf("servers %v, want %v", now, want)
	}
	for asked, want := range []string{"192.0.2.2:53", "[2001:db8::1]:53", "192.0.2.2:53"} {
		if got := present("192.0.2.99:53", now, asked); got != want {
			t.Errorf("question %d goes to %s, want %s", asked, got, want)
		}
	}
	if got := present("[2001:db8::1]:53", now, 0); got != "[2001:db8::1]:53" {
		t.Errorf("a server that is still one is not asked, but %s", got)
	}
	if got := present("192.0.2.99:53", nameServers(file+"-missing"), 0); got != "192.0.2.99:53" {
		t.Errorf("without a file %s is asked", got)
	}
}

func TestConnectionsComeFromTheSource(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // no connection is accepted any more
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		c, err := NetDialer()(WithSource(t.Context(), netip.MustParseAddr(from)), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got := netip.MustParseAddrPort(c.LocalAddr().String()).Addr().String(); got != from {
			t.Errorf("a connection from %s comes from %s", from, got)
		}
		_ = c.Close() // it was never used
	}
	if c, err := NetDialer()(WithSource(t.Context(), netip.MustParseAddr("192.0.2.77")), l.Addr().String()); err == nil {
		t.Errorf("a connection comes from %s, which is no address of this machine", c.LocalAddr())
	}
	c, err := NetDialer()(WithSource(t.Context(), netip.Addr{}), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close() // it was never used
}
