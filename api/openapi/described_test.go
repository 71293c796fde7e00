package openapi_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/ingot-metal/ingot/internal/apijson"
)

// answered returns the messages that stand in answers.
func answered(t *testing.T) []protoreflect.MessageDescriptor {
	t.Helper()
	known := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	var add func(protoreflect.MessageDescriptor)
	add = func(m protoreflect.MessageDescriptor) {
		if known[m.FullName()] != nil || m.IsMapEntry() || m.ParentFile().Package() != "baremetal.v1" {
			return
		}
		known[m.FullName()] = m
		for i := range m.Fields().Len() {
			if inner := m.Fields().Get(i).Message(); inner != nil {
				add(inner)
			}
			if value := m.Fields().Get(i).MapValue(); value != nil && value.Message() != nil {
				add(value.Message())
			}
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				add(methods.Get(j).Output())
			}
		}
		return true
	})
	return slices.Collect(maps.Values(known))
}

// TestAnswersRequireWhatIsAlwaysWritten: of a message without any value, the gateway writes the fields that the
// document requires, and no other one. A node's history has a form of its own, with all of its fields.
func TestAnswersRequireWhatIsAlwaysWritten(t *testing.T) {
	all := load(t).Components.Schemas
	fields := 0
	for _, m := range answered(t) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := apijson.Marshal(kind.New().Interface())
		if err != nil {
			t.Fatal(err)
		}
		var written map[string]any
		if err := json.Unmarshal(raw, &written); err != nil {
			t.Fatal(err)
		}
		schema := all[string(m.FullName())]
		if schema == nil {
			t.Errorf("the document has no %s", m.FullName())
			continue
		}
		want, got := slices.Sorted(maps.Keys(written)), slices.Sorted(slices.Values(schema.Value.Required))
		if m.Name() == "NodeStateLog" {
			want = slices.Sorted(maps.Keys(schema.Value.Properties))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s requires %v, and always has %v", m.FullName(), got, want)
		}
		fields += len(got)
	}
	if fields < 300 {
		t.Errorf("%d fields of answers are required", fields)
	}
}

// TestRequestsAreNotAnswers: no request needs a field because answers always have it. The tests of
// controller/api/public hold the server's own refusals.
func TestRequestsAreNotAnswers(t *testing.T) {
	for path, item := range load(t).Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			schema := op.RequestBody.Value.Content["application/json"].Schema
			if strings.HasSuffix(schema.Ref, "baremetal.v1.Machine") || slices.Contains(schema.Value.Required, "version") {
				t.Errorf("%s %s takes an answer: %s", method, path, schema.Ref)
			}
		}
	}
}

// TestEveryOperationHasExamples of its request and its answer. Validate holds them against their schemas.
func TestEveryOperationHasExamples(t *testing.T) {
	doc := load(t)
	examples := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if body := op.RequestBody; body != nil && body.Value.Content["application/json"].Example == nil {
				t.Errorf("%s %s has no example of its body", method, path)
			}
			for _, media := range op.Responses.Value("200").Value.Content {
				if len(media.Examples) != 1 {
					t.Errorf("%s %s has %d examples of its answer", method, path, len(media.Examples))
				}
				examples++
			}
		}
	}
	if examples < 140 {
		t.Errorf("%d answers have examples", examples)
	}
	// And Validate would notice one that is wrong.
	doc.Components.Examples["baremetal.v1.Machine"].Value.Value.(map[string]any)["version"] = 7
	if err := doc.Validate(t.Context()); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a number for the version of a machine passes: %v", err)
	}
	delete(doc.Components.Examples["baremetal.v1.Machine"].Value.Value.(map[string]any), "version")
	if err := doc.Validate(t.Context()); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a machine without a version passes: %v", err)
	}
}

// TestRequiredOfRequests: what a call is refused without is required in its body and its query, at any depth.
func TestRequiredOfRequests(t *testing.T) {
	doc := load(t)
	refused := func(path, method, body string) bool {
		schema := doc.Paths.Value(path).GetOperation(method).RequestBody.Value.Content["application/json"].Schema.Value
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		return schema.VisitJSON(v, openapi3.EnableJSONSchema2020()) != nil
	}
	for _, c := range []struct {
		path, method, good, bad string
	}{
		{"/api/v1/machines/{machine_id}/reboot", "POST", `{"request_id": "r"}`, `{"mode": "force"}`},
		{"/api/v1/plans", "POST", `{"steps": [{}]}`, `{"plan_id": "p"}`},
		{"/api/v1/scripts", "POST", `{"content": "eA==", "script": {"script_ref": "s"}}`,
			`{"content": "eA==", "script": {}}`},
		{"/api/v1/machines", "POST", `{}`, `{"labels": 7}`},
	} {
		if refused(c.path, c.method, c.good) || !refused(c.path, c.method, c.bad) {
			t.Errorf("%s %s does not take %s, or takes %s", c.method, c.path, c.good, c.bad)
		}
	}
	for _, p := range doc.Paths.Value("/api/v1/machine-search").Get.Parameters {
		if p.Value.In == "query" && p.Value.Required != (p.Value.Name == "text") {
			t.Errorf("%s is required: %t", p.Value.Name, p.Value.Required)
		}
	}
}

// TestDeprecatedIsMarked: fields and calls by OpenAPI's own word, values of enums by an extension.
func TestDeprecatedIsMarked(t *testing.T) {
	doc := load(t)
	phase := doc.Components.Schemas["baremetal.v1.MachineStatus.Phase"].Value
	got, _ := phase.Extensions["x-deprecated-values"].([]any)
	if len(got) != 4 || got[0] != "PROVISIONING" {
		t.Errorf("deprecated phases are %v", got)
	}
	for _, m := range answered(t) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			property := doc.Components.Schemas[string(m.FullName())].Value.Properties[string(f.Name())]
			options, ok := f.Options().(*descriptorpb.FieldOptions)
			if property != nil && property.Value.Deprecated != (ok && options.GetDeprecated()) {
				t.Errorf("%s is marked as deprecated: %t", f.FullName(), property.Value.Deprecated)
			}
		}
	}
}
