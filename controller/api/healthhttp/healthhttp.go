// Package healthhttp is the controller's plain HTTP listener: /healthz, /readyz and /metrics. It asks for no
// authentication and shows nothing of the fleet but counts.
package healthhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"google.golang.org/grpc/peer"

	"github.com/ingot-metal/ingot/internal/obs/redact"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	checkTimeout    = 2 * time.Second
	shutdownTimeout = 5 * time.Second
)

// Check is one condition of being ready. Run must be safe for concurrent use and honour its context.
type Check struct {
	// Name appears in the answer of /readyz, such as database, migrations, lease.
	Name string
	Run  func(ctx context.Context) error
}

// Config has the metrics and the checks to serve.
type Config struct {
	// Gatherer returns the metrics.
	Gatherer prometheus.Gatherer
	// Checks decide /readyz, in this order.
	Checks []Check
	// Logger is slog.Default() when nil.
	Logger *slog.Logger
	// Requested, if set, is called with each request before anything else is done with it; its context has the peer.
	Requested func(ctx context.Context)
	// Mount adds handlers, by pattern of http.ServeMux.
	Mount map[string]http.Handler
}

// Server is the listener's handler and its life.
type Server struct {
	cfg  Config
	http *http.Server
}

// New makes the server; it listens nowhere yet. It panics on a pattern in Mount that clashes with another.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		Timeout: 10 * time.Second, MaxRequestsInFlight: 10, ErrorLog: errorLog{cfg.Logger},
	}))
	for pattern, handler := range cfg.Mount {
		mux.Handle(pattern, handler)
	}
	s.http = &http.Server{
		Handler: s.noted(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 60 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
		},
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug), // mostly strangers' broken requests
	}
	return s
}

// noted records each request, and takes no body.
func (s *Server) noted(next http.Handler) http.Handler {
	if s.cfg.Requested == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.cfg.Requested(r.Context())
		next.ServeHTTP(w, r)
	})
}

// Handler is what Serve serves.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers on l until ctx ends, then lets requests finish for a few seconds. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	group, ctx := task.New(ctx)
	group.Go("http shutdown", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := s.http.Shutdown(stop); err != nil {
			return s.http.Close()
		}
		return nil
	})
	group.Go("http serve", func(context.Context) error {
		err := s.http.Serve(l)
		if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve HTTP: %w", err)
	})
	return group.Wait()
}

// healthz reports only that the process is there and serves: a supervisor that restarts a controller because its
// database is away would make things worse.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readiness is the answer of /readyz. Checks has "ok" or the error for each name.
type readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]string `json:"checks"`
}

// readyz runs all checks at once: 200 when all pass, 503 otherwise.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	answer, code := s.ready(r.Context()), http.StatusOK
	if !answer.Ready {
		code = http.StatusServiceUnavailable
	}
	s.answer(w, code, answer)
}

func (s *Server) ready(ctx context.Context) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out := readiness{Ready: true, Checks: map[string]string{}}
	var mu sync.Mutex
	group, ctx := task.New(ctx)
	for _, check := range s.cfg.Checks {
		group.Go(check.Name, func(context.Context) error {
			// Panics too are an answer, and one failed check must not cut the others short: so never an error here.
			err := task.Run(ctx, check.Name, check.Run)
			mu.Lock()
			defer mu.Unlock()
			out.Checks[check.Name] = verdict(err)
			out.Ready = out.Ready && err == nil
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		out.Ready = false
	}
	return out
}

// verdict is short: the caller may be anyone, and database errors can be long and hold a URL.
func verdict(err error) string {
	var panicked *task.PanicError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &panicked):
		return "the check itself failed"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	const limit = 200
	text := redact.String(err.Error())
	return text[:min(len(text), limit)]
}

func (s *Server) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.cfg.Logger.Debug("answer not written", "error", err) // the client has gone
	}
}

// errorLog fits promhttp.
type errorLog struct{ logger *slog.Logger }

func (l errorLog) Println(v ...any) {
	l.logger.Error("metrics not gathered", "error", fmt.Sprint(v...))
}
