package tftp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// FuzzPacket sends a packet of any form to a server. The only valid answers are a file that it has, an error or
// options, and it must still serve.
func FuzzPacket(f *testing.F) {
	f.Add(request(1, "even", "octet"))
	f.Add(request(1, "even", "octet", "tsize", "0", "blksize", "1432"))
	f.Add(request(1, "even", "netascii", "blksize", "99999999999999999999", "tsize", "-1"))
	f.Add(request(1, "../../etc/passwd", "octet"))
	f.Add(request(1, "even", "", "blksize", strings.Repeat("0", 480)+"512"))
	f.Add(request(2, "even", "octet", "tsize", "5"))
	f.Add([]byte{0, 3, 0, 1, 'x'})
	f.Add([]byte{0, 4, 0, 1})
	f.Add([]byte{0, 5, 0, 1, 'x', 0})
	f.Add([]byte{0, 6, 't', 's', 'i', 'z', 'e', 0, '9', 0})
	to := startLocal(f, func(c *Config) {
		c.Most, c.MostEach = 1<<20, 1<<20
		c.Log = slog.New(slog.DiscardHandler)
	})
	want := files()["even"]
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > 1400 {
			return
		}
		p := newPeer(t, to)
		p.send(packet)
		if code, rest, from := p.quick(); code != 0 {
			if code == 3 && !known(rest[2:]) {
				t.Errorf("%q is answered with %q", packet, rest)
			}
			if code != 3 && code != 5 && code != 6 {
				t.Errorf("%q is answered with packet %d", packet, code)
			}
			p.to = from
			p.send([]byte{0, 5, 0, 0, 'x', 0}) // so that it does not send it again
		}
		q := newPeer(t, to)
		if got, _ := q.get("even", "octet"); !bytes.Equal(got, want) {
			t.Errorf("after %q the server gives %d bytes", packet, len(got))
		}
	})
}

// quick is next, but returns zero values when nothing comes soon.
func (p *peer) quick() (code uint16, rest []byte, from net.Addr) {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(3 * time.Millisecond)); err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, 65536)
	n, from, err := p.conn.ReadFrom(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil, nil
	}
	if err != nil || n < 4 {
		p.t.Fatalf("%d bytes, %v", n, err)
	}
	return binary.BigEndian.Uint16(b), b[2:n], from
}

// known reports whether a block is the beginning of a file, as it is or with the line ends of netascii.
func known(block []byte) bool {
	for _, data := range files() {
		text := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r", "\r\x00"), "\n", "\r\n")
		if bytes.HasPrefix(data, block) || strings.HasPrefix(text, string(block)) {
			return true
		}
	}
	return false
}
