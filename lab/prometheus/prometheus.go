// Package prometheus runs Debian's Prometheus for tests, and checks this tree's parts with it: the dashboards of
// deploy/grafana, and the machines that it discovers over REST.
package prometheus

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/process"
)

// Server is a Prometheus that ends with its test.
type Server struct {
	t       *testing.T
	address string
}

// Start starts one. files are written beside each other; one of them is prometheus.yaml, the configuration.
func Start(t *testing.T, files map[string]string) *Server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &Server{t, "127.0.0.1:" + testkit.FreePort(t)}
	said := &testkit.Buffer{}
	server, err := process.Start(process.Config{Path: "/usr/bin/prometheus", Output: said, Args: []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + p.address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return p
}

// Get reads an answer of Prometheus' API. It reports whether there was one: while the server starts there is none.
func (p *Server) Get(path string, query url.Values, into any) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

// Series is one result of a query.
type Series struct {
	Metric map[string]string
}

// Query runs a query of now. It reports whether Prometheus could run it.
func (p *Server) Query(query string) ([]Series, bool) {
	p.t.Helper()
	var answer struct {
		Data struct{ Result []Series }
	}
	ok := p.Get("/api/v1/query", url.Values{"query": {query}}, &answer)
	return answer.Data.Result, ok
}
