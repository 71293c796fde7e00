package bmc

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/ingot-metal/ingot/internal/task"
)

// console is where ipmi_sim finds the serial port: it wants a TCP address.
type console struct {
	listener net.Listener
}

func serveConsole(ctx context.Context, group *task.Group, c Chassis, l net.Listener) (*console, error) {
	if l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("listen for the serial console: %w", err)
		}
	}
	group.Go("serial console", func(ctx context.Context) error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil //nolint:nilerr // it was closed
			}
			group.Go("serial console connection", func(context.Context) error { return attach(ctx, group, c, conn) })
		}
	})
	return &console{listener: l}, nil
}

func (s *console) addr() string { return s.listener.Addr().String() }

func (s *console) close() { s.listener.Close() }

// attach joins a connection and the serial port until either ends.
func attach(ctx context.Context, group *task.Group, c Chassis, conn net.Conn) error {
	port, err := c.Serial(ctx)
	if err != nil {
		conn.Close()
		return nil //nolint:nilerr // ipmi_sim tries again
	}
	done := make(chan struct{}, 2)
	pump := func(to io.Writer, from io.Reader) func(context.Context) error {
		return func(context.Context) error {
			// Either end may go away at any time.
			_, _ = io.Copy(to, from)
			done <- struct{}{}
			return nil
		}
	}
	group.Go("serial out", pump(conn, port))
	group.Go("serial in", pump(port, conn))
	select {
	case <-done:
	case <-ctx.Done():
	}
	conn.Close()
	return port.Close()
}
