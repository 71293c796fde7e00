package openapi_test

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/openapi"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	if !doc.IsOpenAPI31OrLater() || doc.Paths.Len() < 50 || len(doc.Components.Schemas) < 100 {
		t.Fatalf("read %s with %d paths and %d schemas", doc.OpenAPI, doc.Paths.Len(), len(doc.Components.Schemas))
	}
	return doc
}

// TestDocumentIsValid: a validator that is not ours finds nothing wrong with it. Another one reads it for the client of
// TypeScript.
func TestDocumentIsValid(t *testing.T) {
	doc := load(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	// And it would find something.
	doc.Paths.Value("/api/v1/machines/{machine_id}").Get.Parameters = nil
	if doc.Validate(t.Context()) == nil {
		t.Error("the validator does not miss a path's parameter")
	}
}

// Every call is described: its effect, whether it needs a token, and the form of its errors.
func TestCallsAreDescribed(t *testing.T) {
	doc := load(t)
	bearer := doc.Components.SecuritySchemes["bearer"]
	if len(doc.Security) != 1 || bearer == nil || bearer.Value.Scheme != "bearer" {
		t.Errorf("security is %v", doc.Security)
	}
	ids := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + path
			if failed := op.Responses.Value("default"); failed == nil || failed.Ref != "#/components/responses/Error" {
				t.Errorf("%s does not say how it fails", name)
			}
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" {
				t.Errorf("%s has the operation id %q and the summary %q", name, op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
			if free := op.Security != nil; free != (op.OperationID == "AccessService_GetSignOn") {
				t.Errorf("%s without a token: %t", name, free)
			}
			describedParameters(t, name, op)
		}
	}
}

func describedParameters(t *testing.T, name string, op *openapi3.Operation) {
	t.Helper()
	var versioned, conditional bool
	for _, p := range op.Parameters {
		if p.Value.Description == "" {
			t.Errorf("%s does not say what %s is", name, p.Value.Name)
		}
		versioned = versioned || p.Value.Name == "expected_version"
		conditional = conditional || p.Value.Name == "If-Match"
	}
	if op.RequestBody != nil {
		body := op.RequestBody.Value.Content["application/json"].Schema.Value
		versioned = versioned || body.Properties["expected_version"] != nil
	}
	if versioned != conditional || conditional != (op.Responses.Value("412") != nil) {
		t.Errorf("%s: expected_version %t, If-Match %t", name, versioned, conditional)
	}
}

// TestFieldsAreDescribed counts the fields of the document's own messages; those of google.rpc are known.
func TestFieldsAreDescribed(t *testing.T) {
	fields := 0
	for name, schema := range load(t).Components.Schemas {
		if !strings.HasPrefix(name, "baremetal.v1.") {
			continue
		}
		for field, p := range schema.Value.Properties {
			fields++
			// The loader puts what stands beside a $ref into the schema that it refers to.
			if p.Value.Description == "" && p.Value.Title == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
	if fields < 700 {
		t.Errorf("the document has %d fields", fields)
	}
	t.Logf("%d fields", fields)
}

// TestDocumentSaysWhatJSONIs: enums and large numbers as strings, bytes as base64, the closed set of reasons, and what
// only the server sets.
func TestDocumentSaysWhatJSONIs(t *testing.T) {
	all := load(t).Components.Schemas
	machine := all["baremetal.v1.Machine"].Value.Properties
	if v := machine["version"].Value; !v.Type.Is("string") || v.Format != "int64" {
		t.Errorf("a version is %v %s", v.Type, v.Format)
	}
	if !machine["status"].Value.ReadOnly || machine["spec"].Value.ReadOnly {
		t.Errorf("read only: status %t, spec %t", machine["status"].Value.ReadOnly, machine["spec"].Value.ReadOnly)
	}
	if v := all["baremetal.v1.LogChunk"].Value.Properties["data"].Value; v.ContentEncoding != "base64" {
		t.Errorf("bytes are %+v", v)
	}
	state := all["baremetal.v1.MachineStatus.EffectiveState"].Value
	if len(state.Enum) != len(baremetalv1.MachineStatus_EffectiveState_name) || state.Enum[4] != "MAINTENANCE" {
		t.Errorf("effective states are %v", state.Enum)
	}
	if n := len(all["baremetal.v1.Reason"].Value.Enum); n != len(baremetalv1.Reason_name)-1 {
		t.Errorf("the document has %d reasons, the API %d", n, len(baremetalv1.Reason_name)-1)
	}
	line := all["baremetal.v1.NodeStateLog"].Value.Properties
	if v := line["user_id"]; v == nil || !v.Value.Type.Includes("null") || line["uuid"] != nil {
		t.Errorf("a line of a node's history has %v", line)
	}
}
