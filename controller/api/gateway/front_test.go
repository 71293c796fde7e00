package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/openapi"
	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/controller/domain/access"
)

func (r *rig) request(method, path, body string, headers ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// refusals are everything that the gateway refuses by itself. field is the first violation.
var refusals = []struct {
	name, method, path, body string
	headers                  []string
	code                     int
	reason, field            string
}{
	{name: "no such path", method: "GET", path: "/api/v1/cows", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "no such version", method: "GET", path: "/api/v2/machines", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "the root", method: "GET", path: "/", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "an empty id", method: "GET", path: "/api/v1/machines/", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "too deep", method: "GET", path: "/api/v1/machines/a/b/c", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "method", method: "DELETE", path: "/api/v1/machines", code: 405, reason: "METHOD_NOT_ALLOWED"},
	{name: "options of no path", method: "OPTIONS", path: "/api/v1/cows", code: 404, reason: "ROUTE_NOT_FOUND"},
	{name: "the head of a stream", method: "HEAD", path: "/api/v1/operation-events", code: 405},
	{name: "override", method: "POST", path: "/api/v1/machines/m", headers: []string{"X-HTTP-Method-Override", "DELETE"},
		code: 405, reason: "METHOD_NOT_ALLOWED"},
	{name: "writing the document", method: "PUT", path: "/openapi.json", code: 405, reason: "METHOD_NOT_ALLOWED"},
	{name: "a form", method: "POST", path: "/api/v1/machines", body: "a=b",
		headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, code: 415, reason: "MEDIA_TYPE_UNSUPPORTED"},
	{name: "no type", method: "POST", path: "/api/v1/machines", body: "{}", headers: []string{"Content-Type", ""},
		code: 415, reason: "MEDIA_TYPE_UNSUPPORTED"},
	{name: "too large", method: "POST", path: "/api/v1/machines", body: `{"machine_id": "` + strings.Repeat("a", 5<<20) +
		`"}`, code: 413, reason: "MESSAGE_TOO_LARGE"},
	{name: "body where there is none", method: "GET", path: "/api/v1/machines", body: "{}", code: 400,
		reason: "INVALID_FIELD"},
	{name: "unknown query", method: "GET", path: "/api/v1/machines?colour=red", code: 400, reason: "INVALID_FIELD",
		field: "colour"},
	{name: "query beside a body", method: "POST", path: "/api/v1/machines/m/reboot?mode=force", code: 400,
		reason: "INVALID_FIELD", field: "mode"},
	{name: "query with a map's key", method: "GET", path: "/api/v1/machines?filter[a]=b", code: 400,
		reason: "INVALID_FIELD", field: "filter[a]"},
	{name: "bad query value", method: "GET", path: "/api/v1/machines?page_size=many", code: 400, reason: "INVALID_FIELD",
		field: "page_size"},
	{name: "query twice", method: "GET", path: "/api/v1/machines?filter=a&filter=b", code: 400, reason: "INVALID_FIELD",
		field: "filter"},
	{name: "bad time", method: "GET", path: "/api/v1/machines?updated_since=yesterday", code: 400, reason: "INVALID_FIELD",
		field: "updated_since"},
	{name: "malformed query", method: "GET", path: "/api/v1/machines?filter=%zz", code: 400, reason: "INVALID_FIELD"},
	{name: "unknown field", method: "POST", path: "/api/v1/machines", body: `{"spec": {"colour": "red"}}`, code: 400,
		reason: "INVALID_FIELD", field: "spec.colour"},
	{name: "bad value", method: "POST", path: "/api/v1/machines/m/reboot", body: `{"timeout_seconds": "soon"}`, code: 400,
		reason: "INVALID_FIELD", field: "timeout_seconds"},
	{name: "no JSON", method: "POST", path: "/api/v1/machines", body: "hello", code: 400, reason: "INVALID_FIELD"},
	{name: "two documents", method: "POST", path: "/api/v1/machines", body: "{} {}", code: 400, reason: "INVALID_FIELD"},
	{name: "another machine in the body", method: "POST", path: "/api/v1/machines/m/reboot", body: `{"machine_id": "n"}`,
		code: 400, reason: "INVALID_FIELD", field: "machine_id"},
	{name: "the same in the other spelling", method: "PUT", path: "/api/v1/machines/m", body: `{"machineId": "n"}`,
		code: 400, reason: "INVALID_FIELD", field: "machine_id"},
	{name: "another webhook in the body", method: "PATCH", path: "/api/v1/webhooks/w",
		body: `{"webhook": {"webhook_id": "x"}}`, code: 400, reason: "INVALID_FIELD", field: "webhook.webhook_id"},
	{name: "no token", method: "GET", path: "/api/v1/machines", headers: []string{"Authorization", "none"}, code: 401,
		reason: "BEARER_MISSING"},
	{name: "bad token", method: "GET", path: "/api/v1/machines", headers: []string{"Authorization", "Bearer wrong"},
		code: 401, reason: "BEARER_INVALID"},
	{name: "bad token of a stream", method: "GET", path: "/api/v1/operation-events",
		headers: []string{"Authorization", "Bearer wrong"}, code: 401, reason: "BEARER_INVALID"},
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			r.double.tell(nil, &pb.Machine{})
			resp, err := r.client.Do(r.withToken(r.request(c.method, c.path, c.body, c.headers...)))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			reason, field := "", ""
			if c.method != http.MethodHead {
				reason, field = readStatus(t, resp)
			}
			if resp.StatusCode != c.code || reason != c.reason || field != c.field {
				t.Errorf("%d %s %q, want %d %s %q", resp.StatusCode, reason, field, c.code, c.reason, c.field)
			}
			if r.double.last() != nil {
				t.Errorf("the service saw %v", r.double.last())
			}
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("CORS header %q", got)
			}
			if (c.code == 401) != (resp.Header.Get("WWW-Authenticate") == "Bearer") ||
				(c.code == 405) != (resp.Header.Get("Allow") != "") {
				t.Errorf("headers %v", resp.Header)
			}
		})
	}
}

func (r *rig) withToken(req *http.Request) *http.Request {
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+r.secret)
	}
	return req
}

// readStatus reads a google.rpc.Status out of an answer, and returns its reason and the first field at fault.
func readStatus(t *testing.T, resp *http.Response) (reason, field string) {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the answer is %s", got)
	}
	var st spb.Status
	if err := protojson.Unmarshal(raw, &st); err != nil || st.GetMessage() == "" {
		t.Fatalf("%v in %s", err, raw)
	}
	for _, d := range status.FromProto(&st).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.BadRequest:
			field = d.GetFieldViolations()[0].GetField()
		}
	}
	return reason, field
}

// What a client sends besides its token does not reach the service, and what the service sends besides its answer does
// not reach the client.
func TestOnlyTheTokenGoesThrough(t *testing.T) {
	r := newRig(t)
	r.double.tell(nil, &pb.Machine{})
	req := r.request("GET", "/api/v1/machines/m", "", "Grpc-Metadata-Caller", "root", "Cookie", "a=b",
		"Grpcgateway-Cookie", "c=d")
	resp, err := r.client.Do(r.withToken(req))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r.double.caller.Name != "tester" || r.double.caller.Scope != access.ScopeAdmin {
		t.Errorf("the caller is %+v", r.double.caller)
	}
	for _, key := range []string{"caller", "cookie", "grpcgateway-cookie", "authorization"} {
		if got := r.double.md.Get(key); len(got) > 0 {
			t.Errorf("the service sees %s: %v", key, got)
		}
	}
	for key := range resp.Header {
		if strings.HasPrefix(key, "Grpc-") {
			t.Errorf("the client sees %s", key)
		}
	}
	if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", resp.Header)
	}
}

// A document that was read can be written back, though it has MAINTENANCE where the enum has another name.
func TestWhatWasReadCanBeWritten(t *testing.T) {
	r := newRig(t)
	m := &pb.Machine{MachineId: "m", Status: &pb.MachineStatus{EffectiveState: pb.MachineStatus_MAINTENANCE_IDLE,
		NodeState: pb.NodeState_NODE_STATE_ACTIVE}}
	r.double.tell(nil, m)
	_, body := r.do(r.request("GET", "/api/v1/machines/m", ""))
	if !bytes.Contains(body, []byte(`"effective_state":"MAINTENANCE"`)) {
		t.Errorf("read %s", body)
	}
	if code, answer := r.do(r.request("PUT", "/api/v1/machines/m", string(body))); code != 200 ||
		!proto.Equal(r.double.last(), &pb.UpdateMachineRequest{Machine: m}) {
		t.Errorf("%d %s: the service saw %v", code, answer, r.double.last())
	}
}

func TestNodePathsAsPublished(t *testing.T) {
	r := newRig(t)
	r.double.tell(nil,
		&pb.GetNodeHistoryResponse{Data: []*pb.NodeStateLog{{Id: "1", ToState: pb.NodeState_NODE_STATE_PENDING}}, Total: 15})
	_, body := r.do(r.request("GET", "/api/v1/nodes/n-1/history?limit=50&offset=0", ""))
	var history struct {
		Data  []map[string]any
		Total int
	}
	if err := json.Unmarshal(body, &history); err != nil || len(history.Data) != 1 || history.Total != 15 {
		t.Errorf("%v in %s", err, body)
	}
	if want := (&pb.GetNodeHistoryRequest{NodeId: "n-1", Limit: 50}); !proto.Equal(r.double.last(), want) {
		t.Errorf("the service saw %v", r.double.last())
	}
	for _, c := range []struct {
		method, path, body string
		want               proto.Message
	}{
		{"PATCH", "/api/v1/nodes/n-1", `{"plan_id": "p"}`, &pb.UpdateNodeRequest{NodeId: "n-1", PlanId: "p"}},
		{"POST", "/api/v1/nodes/n-1/transition", `{"state": "pending", "force": true}`,
			&pb.TransitionNodeRequest{NodeId: "n-1", State: pb.NodeState_NODE_STATE_PENDING, Force: true}},
		{"POST", "/api/v1/report",
			`{"mac_address": "52:54:00:00:00:01", "installation_status": "progress", "installation_progress": 40}`,
			&pb.ReportNodeRequest{MacAddress: "52:54:00:00:00:01", InstallationStatus: "progress", InstallationProgress: 40}},
	} {
		r.double.tell(nil, &pb.Node{})
		if code, answer := r.do(r.request(c.method, c.path, c.body)); code != 200 || !proto.Equal(r.double.last(), c.want) {
			t.Errorf("%s %s: %d %s, the service saw %v", c.method, c.path, code, answer, r.double.last())
		}
	}
}

func TestTheDocumentIsServedToAnybody(t *testing.T) {
	r := newRig(t)
	resp, err := r.client.Get(r.url + gateway.DocumentPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, openapi.Document) ||
		resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d, %d bytes, %v (%v)", resp.StatusCode, len(body), resp.Header, err)
	}
}

// nested is what stands before the last name of a path parameter such as {machine.machine_id}.
var nested = regexp.MustCompile(`\{\w+\.`)

// TestEveryMappingIsDocumented: a path that the document lacks would not be served either.
func TestEveryMappingIsDocumented(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	documented := 0
	for _, methods := range doc.Paths {
		documented += len(methods)
	}
	all := bindings(t)
	for _, b := range all {
		path := nested.ReplaceAllString(b.template, "{")
		if _, ok := doc.Paths[path][strings.ToLower(b.verb)]; !ok {
			t.Errorf("%s is not in the document", b.name())
		}
	}
	if documented != len(all) {
		t.Errorf("%d are documented and %d mapped", documented, len(all))
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestServedForReal: TLS, both versions of HTTP, a stream whose head comes before its first line, and an end without
// waiting for idle clients.
func TestServedForReal(t *testing.T) {
	r := newRig(t)
	front := httptest.NewUnstartedServer(nil)
	front.StartTLS()
	cert := front.TLS.Certificates[0]
	roots := front.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	front.Close()
	address, stop := serveForReal(t, r, gateway.Config{}, cert)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
			ForceAttemptHTTP2: protocol == "HTTP/2.0"}
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		r.double.tell(nil, &pb.OperationEvent{Seq: 1}, &pb.OperationEvent{Seq: 2})
		req := r.withToken(r.request("GET", "/api/v1/operation-events", ""))
		req.URL.Host = address
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			lines = append(lines, s.Text())
		}
		resp.Body.Close()
		if resp.Proto != protocol || resp.Header.Get("Content-Type") != "application/x-ndjson" || len(lines) != 2 ||
			!slices.IsSorted(lines) {
			t.Errorf("%s: %s %v %q", protocol, resp.Proto, resp.Header, lines)
		}
	}
	stop()
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the listener is open after the end")
	}
}

// A client that never finishes its body gets an error, and does not hold the gateway.
func TestSlowBodies(t *testing.T) {
	r := newRigWith(t, gateway.Config{BodyTimeout: 50 * time.Millisecond})
	body, w := io.Pipe()
	defer w.Close()
	req := r.withToken(r.request("POST", "/api/v1/machines", "{"))
	req.Body, req.ContentLength = body, 100
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if reason, _ := readStatus(t, resp); resp.StatusCode != 400 || reason != "INVALID_FIELD" {
		t.Errorf("%d %s", resp.StatusCode, reason)
	}
}

// A call that the service does not answer ends.
func TestSlowCalls(t *testing.T) {
	r := newRigWith(t, gateway.Config{CallTimeout: 50 * time.Millisecond})
	r.double.mu.Lock() // the double cannot answer
	resp, err := r.client.Do(r.withToken(r.request("GET", "/api/v1/machines", "")))
	r.double.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s", resp.Status)
	}
}
