package tftp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/agent/site/sitetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

var home = netip.MustParseAddr("127.0.0.1")

// program is a file of several blocks whose last one is short.
func program(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

func files() map[string][]byte {
	return map[string][]byte{
		"undionly.kpxe": program(74213), "snponly.efi": program(173792), "even": program(1024), "empty": {},
		"tiny": []byte("x"),
	}
}

// startLocal serves on a free port of loopback.
func startLocal(t testing.TB, change func(*Config)) net.Addr {
	t.Helper()
	log := &testkit.Buffer{}
	cfg := Config{Interface: "lo", Address: home, Files: files(), Clock: clock.Real(),
		Log: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	conn, err := netdev.ListenUDP(t.Context(), "lo", netip.AddrPortFrom(home, 0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g, _ := task.New(ctx)
	g.Go("server", func(ctx context.Context) error {
		return s.serve(ctx, conn, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	})
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	<-s.Ready()
	return conn.LocalAddr()
}

// peer is a client made by hand.
type peer struct {
	t    testing.TB
	conn *net.UDPConn
	to   net.Addr
}

func newPeer(t testing.TB, to net.Addr) *peer {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: t, conn: conn, to: to}
}

// request is an RRQ, or with another code something else of that form.
func request(code byte, fields ...string) []byte {
	return append([]byte{0, code}, strings.Join(fields, "\x00")+"\x00"...)
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.conn.WriteTo(b, p.to); err != nil {
		p.t.Fatal(err)
	}
}

// next returns the code and the rest of the next packet; what follows goes to where it came from.
func (p *peer) next() (code uint16, rest []byte) {
	p.t.Helper()
	b := make([]byte, 65536)
	if err := p.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		p.t.Fatal(err)
	}
	n, from, err := p.conn.ReadFrom(b)
	if err != nil {
		p.t.Fatal(err)
	}
	p.to = from
	return binary.BigEndian.Uint16(b), b[2:n]
}

// get fetches a file and returns it with the options that were granted.
func (p *peer) get(fields ...string) (data []byte, granted string) {
	p.t.Helper()
	p.send(request(1, fields...))
	for block := uint16(0); ; {
		switch code, rest := p.next(); code {
		case 6:
			granted = string(rest)
			p.send([]byte{0, 4, 0, 0})
		case 3:
			got := binary.BigEndian.Uint16(rest)
			p.send(append([]byte{0, 4}, rest[:2]...))
			if got == block {
				continue // on a busy machine the server sent it again before it had our answer
			}
			if got != block+1 {
				p.t.Fatalf("block %d after %d", got, block)
			}
			block++
			data = append(data, rest[2:]...)
			if len(rest)-2 < blockSize(granted) {
				return data, granted
			}
		default:
			p.t.Fatalf("packet %d, %q", code, rest)
		}
	}
}

func blockSize(granted string) int {
	fields := strings.Split(granted, "\x00")
	if i := slices.Index(fields, "blksize"); i >= 0 {
		var n int
		if _, err := fmt.Sscan(fields[i+1], &n); err == nil {
			return n
		}
	}
	return 512
}

func options(granted string) map[string]string {
	fields := strings.Split(granted, "\x00")
	out := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		out[fields[i]] = fields[i+1]
	}
	return out
}

func TestOptions(t *testing.T) {
	t.Parallel()
	to := startLocal(t, nil)
	for _, c := range []struct {
		fields []string
		want   map[string]string
	}{
		{[]string{"undionly.kpxe", "octet"}, map[string]string{}},
		{[]string{"undionly.kpxe", "octet", "tsize", "0"}, map[string]string{"tsize": "74213"}},
		{[]string{"/snponly.efi", "octet", "tsize", "0", "blksize", "1432"},
			map[string]string{"tsize": "173792", "blksize": "1432"}},
		{[]string{"\\snponly.efi", "octet", "blksize", "1468", "tsize", "0"},
			map[string]string{"tsize": "173792", "blksize": "1468"}},
		{[]string{"even", "octet", "blksize", "512"}, map[string]string{"blksize": "512"}},
		{[]string{"even", "octet", "tsize", "77777777", "blksize", "x"}, map[string]string{"tsize": "1024"}},
		{[]string{"even", "octet", "blksize", "8", "windowsize", "4"}, map[string]string{}},
		{[]string{"tiny", "octet", "tsize", "0"}, map[string]string{"tsize": "1"}},
		{[]string{"empty", "octet"}, map[string]string{}},
		{[]string{"even\xff", "octet"}, map[string]string{}},
	} {
		data, granted := newPeer(t, to).get(c.fields...)
		if want := files()[strings.TrimSuffix(strings.Trim(c.fields[0], "/\\"), "\xff")]; !bytes.Equal(data, want) {
			t.Errorf("%q: %d bytes, want %d", c.fields, len(data), len(want))
		}
		got := options(granted)
		if len(got) != len(c.want) {
			t.Errorf("%q: granted %q, want %q", c.fields, got, c.want)
		}
		for name, value := range c.want {
			if got[name] != value {
				t.Errorf("%q: granted %q, want %q", c.fields, got, c.want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	to := startLocal(t, nil)
	for _, name := range []string{
		"", "/", "//even", "nothing", "EVEN", "../even", "/etc/passwd", "..\\..\\etc\\passwd", "even/", "./even", "\xffeven",
		strings.Repeat("a", 400),
	} {
		p := newPeer(t, to)
		p.send(request(1, name, "octet"))
		if code, rest := p.next(); code != 5 || binary.BigEndian.Uint16(rest) != 1 {
			t.Errorf("%q: packet %d, %.40q", name, code, rest)
		}
	}
	p := newPeer(t, to)
	p.send(request(2, "even", "octet"))
	if code, _ := p.next(); code != 5 {
		t.Errorf("a write is answered with packet %d", code)
	}
	// A packet that is no request is ignored, and does not stop the server.
	q := newPeer(t, to)
	for _, junk := range [][]byte{{}, {0}, {0, 1}, {0, 1, 0}, {0, 9, 0, 0}, {0, 4, 0, 1}, []byte("hello"),
		bytes.Repeat([]byte{0, 1}, 400)} {
		q.send(junk)
	}
	if data, _ := newPeer(t, to).get("even", "octet"); len(data) != 1024 {
		t.Errorf("%d bytes after junk", len(data))
	}
}

func TestTransfersAreBounded(t *testing.T) {
	t.Parallel()
	to := startLocal(t, func(c *Config) { c.Most, c.MostEach = 5, 2 })
	open := func() (code uint16) {
		p := newPeer(t, to)
		p.send(request(1, "snponly.efi", "octet"))
		code, _ = p.next()
		t.Cleanup(func() { p.send([]byte{0, 5, 0, 0, 'x', 0}) }) // break it off
		return code
	}
	if a, b := open(), open(); a != 3 || b != 3 {
		t.Fatalf("packets %d, %d", a, b)
	}
	if code := open(); code != 5 {
		t.Errorf("a third transfer of one client begins with packet %d", code)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.efi"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, missing, err := Load(dir, "a.efi", "b.efi")
	if err != nil || string(got["a.efi"]) != "a" || !slices.Equal(missing, []string{"b.efi"}) {
		t.Errorf("%v, %v, %v", got, missing, err)
	}
	if err := os.Truncate(filepath.Join(dir, "a.efi"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(dir, "a.efi"); err == nil {
		t.Error("a file of 16 MiB and a byte is loaded")
	}
	if _, err := New(Config{Interface: "lo", Address: home, Files: map[string][]byte{"a/b": nil}, Clock: clock.Real(),
		Log: testkit.Logger(t)}); err == nil {
		t.Error("a file with a path for a name is served")
	}
}

func TestStandardClients(t *testing.T) {
	t.Parallel()
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "site0", "10.77.0.1/24")
	sitetest.Bridge(t, "other0", "10.66.0.1/24")
	s, err := New(Config{Interface: "site0", Address: netip.MustParseAddr("10.77.0.1"), Files: files(),
		Clock: clock.Real(), Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, _ := task.New(context.WithoutCancel(ctx))
	g.Go("server", func(context.Context) error { return s.Run(ctx) })
	<-s.Ready()
	m := sitetest.NewMachine(t, "site0", "52:54:00:00:00:01")
	m.Run("ip addr add 10.77.0.9/24 dev eth0")
	dir := t.TempDir()
	for i, line := range []string{
		"tftp 10.77.0.1 -m binary -c get snponly.efi %s",
		"busybox tftp -g -r snponly.efi -l %s 10.77.0.1",         // asks for tsize
		"busybox tftp -g -b 1432 -r snponly.efi -l %s 10.77.0.1", // and blksize
		"busybox tftp -g -b 9000 -r snponly.efi -l %s 10.77.0.1", // more than a frame holds
		"busybox tftp -g -r /snponly.efi -l %s 10.77.0.1",
	} {
		path := filepath.Join(dir, fmt.Sprint(i))
		m.Run(fmt.Sprintf(line, path))
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, files()["snponly.efi"]) {
			t.Errorf("%s: %d bytes, %v", line, len(data), err)
		}
	}
	for _, line := range []string{"busybox tftp -g -r /etc/hostname -l /dev/null 10.77.0.1",
		"busybox tftp -p -l /etc/hostname -r even 10.77.0.1"} {
		if out, err := m.Try(t.Context(), line); err == nil {
			t.Errorf("%s: %s", line, out)
		}
	}
	// From another interface, by a route, the same address does not answer.
	other := sitetest.NewMachine(t, "other0", "52:54:00:00:00:02")
	other.Run("ip addr add 10.66.0.9/24 dev eth0")
	other.Run("ip route add 10.77.0.0/24 via 10.66.0.1")
	other.Run("busybox ping -c 1 10.77.0.1")
	if out, err := other.Try(t.Context(), "busybox timeout 1 busybox tftp -g -r even -l /dev/null 10.77.0.1"); err == nil {
		t.Errorf("a client on another interface is served: %s", out)
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// panicking is a client's end on which writing fails in the worst way.
type panicking struct{}

func (panicking) ReadFrom(io.Reader) (int64, error) { panic("secret detail") }
func (panicking) SetSize(int64)                     {}
func (panicking) RemoteAddr() net.UDPAddr           { return net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func TestAPanicEndsOneTransfer(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Interface: "lo", Address: home, Files: files(), Clock: clock.Real(), Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.handler(t.Context())("even", panicking{}); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	if s.total != 0 || len(s.running) != 0 {
		t.Error("its place is not free again")
	}
}
