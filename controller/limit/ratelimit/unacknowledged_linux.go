package ratelimit

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged is how long the kernel waits for an acknowledgement before it ends a connection.
const unacknowledged = 15 * time.Second

// limitUnacknowledged sets TCP_USER_TIMEOUT (RFC 5482), as gRPC does on connections that it accepts itself.
func limitUnacknowledged(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it has been closed
	}
	// Without it, keepalive ends the connection later.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
}
