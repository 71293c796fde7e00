package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/api/openapi"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestAnswersFitTheDocument: every answer, full or empty, fits the schema that the document has for it; and so does
// every error. A line of a stream is one answer.
func TestAnswersFitTheDocument(t *testing.T) {
	r := newRig(t)
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	fits := func(what string, schema *openapi3.Schema, body []byte) {
		t.Helper()
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatalf("%s: %v in %s", what, err, body)
		}
		if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ops := map[string]*openapi3.Operation{}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			name, _ := op.Extensions["x-grpc-method"].(string)
			ops[name] = op
		}
	}
	for _, b := range bindings(t) {
		kind := "application/json"
		if b.method.IsStreamingServer() {
			kind = "application/x-ndjson"
		}
		schema := ops[b.full].Responses.Value("200").Value.Content[kind].Schema.Value
		in := filled(b.method.Input(), 0)
		r.double.tell(nil, newMessage(b.method.Output()))
		_, empty := r.overREST(b, in)
		fits(b.name(), schema, empty)
		r.double.tell(nil, filled(b.method.Output(), 1))
		_, full := r.overREST(b, in)
		fits(b.name(), schema, full)
	}
	failed := doc.Components.Responses["Error"].Value.Content["application/json"].Schema.Value
	for _, err := range []error{
		failure.NotFound("MACHINE_NOT_FOUND", "none"), failure.Exhausted("RATE_LIMITED", "slower").WithRetry(1),
		failure.Invalid("INVALID_FIELD", "two").WithField("spec.rack", "too long").WithMeta("a", "b"),
		status.Error(codes.Canceled, "gone"),
	} {
		r.double.tell(err)
		code, body := r.do(r.request(http.MethodGet, "/api/v1/machines/m", ""))
		if code == http.StatusOK {
			t.Errorf("%v is no error: %s", err, body)
		}
		fits(err.Error(), failed, body)
	}
	for name, bad := range map[string]string{"no message": `{"code": 3}`, "a detail of nothing": `{"code": 3,
		"message": "", "details": [{}]}`} {
		var v any
		if err := json.Unmarshal([]byte(bad), &v); err != nil || failed.VisitJSON(v, openapi3.EnableJSONSchema2020()) == nil {
			t.Errorf("an error with %s passes", name)
		}
	}
}
