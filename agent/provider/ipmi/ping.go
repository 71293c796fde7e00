package ipmi

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

// presencePing is RMCP, no acknowledgement wanted, class ASF, IANA number 4542, type 80h, tag 1 (ASF 2.0, 3.2.4.2).
var presencePing = []byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 1, 0, 0}

// Ping returns nil when a BMC at addr (host:port) supports IPMI; it needs no log-in. Lost packets are sent again.
func Ping(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Control: cloudmeta.Control}).DialContext(ctx, "udp", addr)
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrSilent, err)
	}
	defer conn.Close()
	const tries = 3
	for range tries {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = pingOnce(conn); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", provider.ErrSilent, err)
}

func pingOnce(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(presencePing); err != nil {
		return err
	}
	answer := make([]byte, 128)
	for {
		n, err := conn.Read(answer)
		if err != nil {
			return err
		}
		if isPong(answer[:n]) {
			return nil
		}
	}
}

// isPong reports whether b is an RMCP presence pong of a BMC that supports IPMI (ASF 2.0, 3.2.4.3).
func isPong(b []byte) bool {
	const header, ipmi = 12, 0x80
	return len(b) >= header+9 && b[0] == 6 && b[3]&0x1f == 6 && b[8] == 0x40 && b[header+8]&ipmi != 0
}
