package healthhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/api/healthhttp"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func server(t *testing.T, checks ...healthhttp.Check) *healthhttp.Server {
	registry := metrics.NewRegistry()
	metrics.New(registry)
	return healthhttp.New(healthhttp.Config{
		Gatherer: registry, Checks: checks, Logger: testkit.Logger(t),
		Mount: map[string]http.Handler{"/extra/": http.NotFoundHandler()},
	})
}

func check(name string, err error) healthhttp.Check {
	return healthhttp.Check{Name: name, Run: func(context.Context) error { return err }}
}

func TestReadiness(t *testing.T) {
	ok := check("database", nil)
	away := check("lease", errors.New("dial postgres://u:hunter2@db/x: refused"))
	panics := healthhttp.Check{Name: "migrations", Run: func(context.Context) error { panic("boom") }}
	hangs := healthhttp.Check{Name: "hangs", Run: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	cases := []struct {
		name   string
		checks []healthhttp.Check
		code   int
		want   map[string]string
	}{
		{"none", nil, 200, map[string]string{}},
		{"all well", []healthhttp.Check{ok}, 200, map[string]string{"database": "ok"}},
		{"one away", []healthhttp.Check{ok, away}, 503,
			map[string]string{"database": "ok", "lease": "dial postgres://u:[redacted]@db/x: refused"}},
		{"panic", []healthhttp.Check{panics, ok}, 503,
			map[string]string{"database": "ok", "migrations": "the check itself failed"}},
		{"hangs", []healthhttp.Check{hangs, ok}, 503, map[string]string{"database": "ok", "hangs": "no answer in time"}},
	}
	for _, c := range cases {
		w := get(server(t, c.checks...).Handler(), "GET", "/readyz")
		var body struct {
			Ready  bool
			Checks map[string]string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v in %s", c.name, err, w.Body)
		}
		if w.Code != c.code || body.Ready != (c.code == 200) || len(body.Checks) != len(c.want) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		for name, want := range c.want {
			if body.Checks[name] != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, body.Checks[name], want)
			}
		}
	}
}

func TestHealthIsAboutTheProcessOnly(t *testing.T) {
	s := server(t, check("database", errors.New("away")))
	if w := get(s.Handler(), "GET", "/healthz"); w.Code != 200 {
		t.Errorf("healthz is %d", w.Code)
	}
}

func TestMetricsAndTheRest(t *testing.T) {
	h := server(t).Handler()
	if w := get(h, "GET", "/metrics"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "ingot_operations_unwakeable 0") {
		t.Errorf("metrics: %d %s", w.Code, w.Body)
	}
	for path, want := range map[string]int{"/": 404, "/debug/pprof/": 404, "/extra/x": 404} {
		if w := get(h, "GET", path); w.Code != want {
			t.Errorf("%s is %d", path, w.Code)
		}
	}
	if w := get(h, "POST", "/healthz"); w.Code != 405 {
		t.Errorf("POST is %d", w.Code)
	}
}

func TestServeUntilTheContextEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := server(t)
	go func() { ended <- s.Serve(ctx, l) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "ok") {
		t.Errorf("%s, %v", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

func TestServeReportsALostListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server(t).Serve(t.Context(), l); err == nil {
		t.Error("no error")
	}
}
