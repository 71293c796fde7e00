package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	headerTimeout   = 5 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	maxHeaderBytes  = 16 << 10

	// Of HTTP/2, in bytes; the smallest that the protocol allows.
	receiveBuffer = 64 << 10
	frameBytes    = 16 << 10
	// streamsPerConnection are requests under way on one connection.
	streamsPerConnection = 100
)

// Protocols are what connections of a listener for Serve agree on in their handshake (RFC 7301).
func Protocols() []string { return []string{"h2", "http/1.1"} }

// Serve answers on l, HTTP/1.1 and HTTP/2, until ctx ends, then lets requests finish for a few seconds. It closes l.
// Streams end by themselves when the frontpage drains. The listener makes the TLS handshakes; with t Serve makes them.
func (g *Gateway) Serve(ctx context.Context, l net.Listener, t *tls.Config) error {
	if t != nil {
		t = t.Clone()
		t.NextProtos = Protocols()
		l = tls.NewListener(l, t)
	}
	handler := http.Handler(g)
	if g.cfg.Front != nil {
		handler = g.cfg.Front(g)
	}
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// A connection buffers so many bytes of bodies that were not asked for.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsPerConnection, MaxReceiveBufferPerConnection: receiveBuffer,
			MaxReceiveBufferPerStream: receiveBuffer,
			MaxReadFrameSize:          frameBytes,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
		},
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug), // mostly strangers' broken requests
	}
	group, ctx := task.New(ctx)
	group.Go("rest shutdown", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := srv.Shutdown(stop); err != nil {
			return srv.Close()
		}
		return nil
	})
	group.Go("rest serve", func(context.Context) error {
		err := srv.Serve(l)
		if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve REST: %w", err)
	})
	return group.Wait()
}
