package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	headerTimeout   = 5 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	maxHeaderBytes  = 64 << 10
)

// Serve answers on l over TLS, HTTP/1.1 and HTTP/2, until ctx ends, then lets requests finish for a few seconds. It closes
// l. Streams end by themselves when the frontpage drains.
func (g *Gateway) Serve(ctx context.Context, l net.Listener, t *tls.Config) error {
	t = t.Clone()
	t.NextProtos = []string{"h2", "http/1.1"}
	srv := &http.Server{
		Handler: g, TLSConfig: t, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug), // mostly strangers' broken handshakes
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
		err := srv.ServeTLS(l, "", "")
		if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve REST: %w", err)
	})
	return group.Wait()
}
