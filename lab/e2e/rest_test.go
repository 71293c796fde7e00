package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// document is whatever a call answers, as a program in another language would see it.
type document = map[string]any

// curl is a client that knows nothing of this tree: HTTP, JSON, and a token.
type curl struct {
	t      *testing.T
	base   string
	token  string
	client *http.Client
}

func newCurl(t *testing.T, c *harness.Cluster) *curl {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.Controller().RootPEM()) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &curl{
		t: t, base: "https://" + c.Controller().Addresses().REST + "/api/v1", token: c.Client.Token(),
		client: &http.Client{Transport: transport, Timeout: rig.Soon},
	}
}

func (c *curl) open(method, path, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (c *curl) call(method, path, body string) (int, document) {
	c.t.Helper()
	resp := c.open(method, path, body)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var out document
	if err := json.Unmarshal(raw, &out); err != nil {
		c.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
	return resp.StatusCode, out
}

func (c *curl) must(method, path, body string) document {
	c.t.Helper()
	code, out := c.call(method, path, body)
	if code != http.StatusOK {
		c.t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

func (c *curl) refused(method, path, body string, code int, reason string) {
	c.t.Helper()
	got, out := c.call(method, path, body)
	if raw := fmt.Sprint(out["details"]); got != code || !strings.Contains(raw, "reason:"+reason) {
		c.t.Errorf("%s %s: %d %v, want %d %s", method, path, got, out, code, reason)
	}
}

func restCluster(t *testing.T) (*harness.Cluster, *curl) {
	t.Helper()
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) { cfg.Listen.REST = "127.0.0.1:0" }})
	return c, newCurl(t, c)
}

// TestRESTReboot takes a machine through a reboot with nothing but HTTP.
func TestRESTReboot(t *testing.T) {
	t.Parallel()
	c, rest := restCluster(t)
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	path := "/machines/" + m.ID
	op := rest.must("POST", path+"/enter-maintenance", `{"request_id": "in"}`)
	ended := func() bool {
		return rest.must("GET", "/operations/"+op["operation_id"].(string), "")["phase"] == "SUCCEEDED"
	}
	testkit.Eventually(t, rig.Soon, ended, "maintenance is not entered")
	if status := rest.must("GET", path, "")["status"].(document); status["phase"] != "MAINTENANCE" ||
		status["effective_state"] != "MAINTENANCE" {
		t.Errorf("status is %v", status)
	}
	op = rest.must("POST", path+"/reboot", `{"request_id": "again", "mode": "graceful"}`)
	if again := rest.must("POST", path+"/reboot",
		`{"request_id": "again", "mode": "graceful"}`); again["operation_id"] != op["operation_id"] {
		t.Errorf("the same request again made %v", again)
	}
	rest.refused("POST", path+"/reboot", `{"request_id": "again", "mode": "force"}`, 409, "REQUEST_ID_REUSED")
	last := rest.follow("/operation-events?" +
		url.Values{"filter": {"operation_id=" + op["operation_id"].(string)}}.Encode())
	snapshot := last["snapshot"].(document)
	if last["kind"] != "succeeded" || snapshot["phase"] != "SUCCEEDED" || len(snapshot["evidence"].(document)) == 0 {
		t.Errorf("the last event is %v", last)
	}
	audit := rest.must("GET", "/audit-log?target_id="+m.ID, "")["entries"].([]any)
	if first := audit[0].(document); len(audit) == 0 || first["actor"] != "tester" {
		t.Errorf("the audit log has %v", audit)
	}
}

// follow reads a stream to its end, or to the end of the operation, and returns the last event.
func (c *curl) follow(path string) (last document) {
	c.t.Helper()
	resp := c.open("GET", path, "")
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != "application/x-ndjson" {
		c.t.Fatalf("%s: %s, %s", path, resp.Status, got)
	}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		var line struct{ Result, Error document }
		if err := json.Unmarshal(s.Bytes(), &line); err != nil || line.Result == nil {
			c.t.Fatalf("%v in %s", err, s.Bytes())
		}
		last = line.Result
		if kind := last["kind"]; kind == "succeeded" || kind == "failed" || kind == "canceled" {
			return last
		}
	}
	return last
}

func TestRESTInventory(t *testing.T) {
	t.Parallel()
	_, rest := restCluster(t)
	for i := range 5 {
		rest.must("POST", "/machines",
			fmt.Sprintf(`{"machine_id": "m-%d", "labels": {"env": "test"}, "spec": {"rack": "r42", "external_id": "up/%d"}}`, i,
				i))
	}
	if got := rest.must("GET", "/external-ids/up%2F3/machine", ""); got["machine_id"] != "m-3" {
		t.Errorf("by its other id: %v", got)
	}
	var seen []string
	for token, first := "", true; first || token != ""; first = false {
		page := rest.must("GET", "/machines?"+url.Values{"page_size": {"2"}, "page_token": {token},
			"filter": {"rack=r42"}}.Encode(), "")
		for _, m := range page["machines"].([]any) {
			seen = append(seen, m.(document)["machine_id"].(string))
		}
		token = page["next_page_token"].(string)
	}
	if got := strings.Join(seen, " "); got != "m-0 m-1 m-2 m-3 m-4" {
		t.Errorf("listed %s", got)
	}
	// What was read is changed and written back, as programs do.
	m := rest.must("GET", "/machines/m-1", "")
	m["spec"].(document)["rack"] = "r43"
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	changed := rest.must("PUT", "/machines/m-1", string(raw))
	if changed["spec"].(document)["rack"] != "r43" || changed["version"] == m["version"] {
		t.Errorf("changed to %v", changed)
	}
	if at, err := time.Parse(time.RFC3339Nano, changed["updated_at"].(string)); err != nil || at.Location() != time.UTC {
		t.Errorf("updated_at %v (%v)", changed["updated_at"], err)
	}
	rest.refused("PUT", "/machines/m-1", string(raw), 412, "VERSION_CONFLICT")
	if gone := rest.must("DELETE", "/machines/m-1", ""); gone["deleted_at"] == nil {
		t.Errorf("deleted as %v", gone)
	}
}

func TestRESTRefusals(t *testing.T) {
	t.Parallel()
	c, rest := restCluster(t)
	rest.must("POST", "/machines", `{"machine_id": "m-1"}`)
	rest.refused("POST", "/machines", `{"machine_id": "A!"}`, 400, "INVALID_FIELD")
	rest.refused("POST", "/machines", `{"colour": "red"}`, 400, "INVALID_FIELD")
	rest.refused("GET", "/machines?filter=colour=red", "", 400, "INVALID_FILTER")
	rest.refused("POST", "/machines/m-1/reboot", `{"request_id": "q"}`, 400, "WRONG_PHASE")
	rest.refused("GET", "/operation-events?filter=colour=red", "", 400, "INVALID_FILTER")
	rest.refused("GET", "/operations/op-no/logs", "", 404, "OPERATION_NOT_FOUND")
	rest.refused("GET", "/machines/m-no", "", 404, "MACHINE_NOT_FOUND")
	rest.refused("POST", "/machines", `{"machine_id": "`+strings.Repeat("m", 5<<20)+`"}`, 413, "MESSAGE_TOO_LARGE")
	rest.token = "wrong"
	rest.refused("GET", "/machines", "", 401, "BEARER_INVALID")
	rest.refused("GET", "/operation-events", "", 401, "BEARER_INVALID")
	secret, err := auth.AddToken(c.TokensFile(), "reader", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	rest.token = secret
	rest.must("GET", "/machines", "")
	rest.refused("POST", "/machines/m-1/reboot", `{"request_id": "q"}`, 403, "SCOPE_TOO_SMALL")
	rest.refused("POST", "/fleet/thaw", "", 403, "SCOPE_TOO_SMALL")
}

// TestRESTEndsWithItsController: streams end when the controller stops, and a token that is taken away ends its
// streams.
func TestRESTEndsWithItsController(t *testing.T) {
	t.Parallel()
	c, rest := restCluster(t)
	secret, err := auth.AddToken(c.TokensFile(), "passing", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	standing := rest.open("GET", "/operation-events?from_beginning=true", "")
	defer standing.Body.Close()
	rest.token = secret
	passing := rest.open("GET", "/operation-events?from_beginning=true", "")
	defer passing.Body.Close()
	tokens, err := os.ReadFile(c.TokensFile())
	if err != nil {
		t.Fatal(err)
	}
	kept := regexp.MustCompile(`(?m)^passing .*$`).ReplaceAll(tokens, nil)
	if err := os.WriteFile(c.TokensFile(), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(passing.Body); err != nil || !bytes.Contains(raw, []byte(`{"error":{"code":16`)) {
		t.Errorf("the stream without a token ended with %s (%v)", raw, err)
	}
	c.Stop()
	if raw, err := io.ReadAll(standing.Body); err != nil || !bytes.Contains(raw, []byte("CONTROLLER_DRAINING")) {
		t.Errorf("the stream of a stopped controller ended with %s (%v)", raw, err)
	}
}
