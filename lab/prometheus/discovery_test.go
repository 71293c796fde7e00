package prometheus

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const targets = "/api/v1/prometheus-targets"

// Prometheus finds the machines of a filter in the inventory, scrapes them, and labels what it gets.
func TestPrometheusDiscoversMachines(t *testing.T) {
	t.Parallel()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "node_load1 0.5\n") // the client reports an error
	}))
	t.Cleanup(exporter.Close)
	address, err := url.Parse(exporter.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := harness.NewControllerProcessWith(t, "")
	c.Start("")
	c.Register(&baremetalv1.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod", "team.name": "a"},
		Spec: &baremetalv1.MachineSpec{SshEndpoint: "127.0.0.1:22", Rack: "r42", Group: "web", Site: "s1"}})
	c.Register(&baremetalv1.Machine{MachineId: "m-2", Labels: map[string]string{"env": "test"},
		Spec: &baremetalv1.MachineSpec{SshEndpoint: "127.0.0.1:22"}})
	p := Start(t, map[string]string{"token": c.Token(), "prometheus.yaml": fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: machines
    http_sd_configs:
      - url: https://%s%s?port=%s&filter=labels.env%%3Dprod
        refresh_interval: 1s
        authorization: {type: Bearer, credentials_file: token} # the type is not the default here
        tls_config: {ca_file: %q}
`, c.Addresses().REST, targets, address.Port(), c.CAFile())})
	found := func() map[string]map[string]string {
		out := map[string]map[string]string{}
		series, _ := p.Query("up == 1")
		for _, s := range series {
			out[s.Metric["machine_id"]] = s.Metric
		}
		return out
	}
	testkit.Eventually(t, rig.Soon, func() bool { return len(found()) == 1 }, "no machine is scraped")
	want := map[string]string{"machine_id": "m-1", "site": "s1", "rack": "r42", "group": "web", "label_env": "prod",
		"label_team_name": "a", "job": "machines", "instance": address.Host}
	for name, value := range want {
		if got := found()["m-1"][name]; got != value {
			t.Errorf("%s is %q, not %q", name, got, value)
		}
	}
	harness.Must(t, c.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: "m-2", Labels: map[string]string{"env": "prod"}}})
	testkit.Eventually(t, rig.Soon, func() bool {
		now := found()
		return len(now) == 2 && now["m-2"] != nil
	}, "a machine that fits from now on is not found")
	harness.Must(t, c.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: "m-1"})
	testkit.Eventually(t, rig.Soon, func() bool {
		var answer struct {
			Data struct{ ActiveTargets []json.RawMessage }
		}
		return p.Get("/api/v1/targets", nil, &answer) && len(answer.Data.ActiveTargets) == 1
	}, "a machine that is gone is scraped all the same")
}

// The list is for clients that may read, and takes a port and a filter.
func TestTargets(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcessWith(t, "")
	reporter, err := auth.AddToken(c.TokensFile(), "reporter", access.ScopeReport)
	if err != nil {
		t.Fatal(err)
	}
	c.Start("")
	const machines = 3
	for i := range machines {
		c.Register(&baremetalv1.Machine{MachineId: fmt.Sprintf("m-%04d", i)})
	}
	root, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: rig.Soon}
	get := func(method, query, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.Addresses().REST+targets+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // read to its end
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s, %v", resp.Header.Get("Content-Type"), err)
		}
		return resp.StatusCode, string(body)
	}
	for _, q := range []struct {
		method, query, token string
		code                 int
		reason               string
	}{
		{http.MethodGet, "?port=9100", "nobody", http.StatusUnauthorized, "BEARER_INVALID"},
		{http.MethodGet, "?port=9100", reporter, http.StatusForbidden, "SCOPE_"},
		{http.MethodPost, "?port=9100", c.Token(), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED"},
		{http.MethodGet, "", c.Token(), http.StatusBadRequest, "INVALID_FIELD"},
		{http.MethodGet, "?port=0", c.Token(), http.StatusBadRequest, "INVALID_FIELD"},
		{http.MethodGet, "?port=9100&page_size=1", c.Token(), http.StatusBadRequest, "INVALID_FIELD"},
		{http.MethodGet, "?port=9100&filter=nonsense%3D1", c.Token(), http.StatusBadRequest, "INVALID_FILTER"},
	} {
		if code, body := get(q.method, q.query, q.token); code != q.code || !strings.Contains(body, q.reason) {
			t.Errorf("%s %s: %d %s, want %d %s", q.method, q.query, code, body, q.code, q.reason)
		}
	}
	code, body := get(http.MethodGet, "?port=9100", c.Token())
	var list []struct{ Targets []string }
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK || len(list) != machines {
		t.Fatalf("%d machines of %d, %d, %v", len(list), machines, code, err)
	}
	var all []string
	for _, group := range list {
		all = append(all, group.Targets...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != machines || all[0] != "m-0000:9100" {
		t.Errorf("%d different targets, the first %s", len(all), all[0])
	}
}
