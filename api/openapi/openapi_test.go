package openapi_test

import (
	"encoding/json"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"

	"github.com/ingot-metal/ingot/api/openapi"
)

// TestDocumentIsValid: a validator that is not ours finds nothing wrong with it.
func TestDocumentIsValid(t *testing.T) {
	var v2 openapi2.T
	if err := json.Unmarshal(openapi.Document, &v2); err != nil {
		t.Fatal(err)
	}
	if v2.Swagger != "2.0" || len(v2.Paths) < 50 || len(v2.Definitions) < 100 {
		t.Fatalf("read %s with %d paths and %d definitions", v2.Swagger, len(v2.Paths), len(v2.Definitions))
	}
	v3, err := openapi2conv.ToV3(&v2)
	if err != nil {
		t.Fatalf("convert: %v", err)
	}
	if err := v3.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	// And it would find something.
	v3.Paths.Value("/api/v1/machines/{machine_id}").Get.Parameters = nil
	if v3.Validate(t.Context()) == nil {
		t.Error("the validator does not miss a path's parameter")
	}
}

// Every call needs a token, and says in which form it fails.
func TestCallsAreDescribed(t *testing.T) {
	var doc openapi2.T
	if err := json.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Security) != 1 || doc.SecurityDefinitions["bearer"] == nil {
		t.Errorf("security is %v", doc.Security)
	}
	ids := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item.Operations() {
			if failed := op.Responses.Value("default"); failed == nil || failed.Schema.Ref != "#/definitions/google.rpc.Status" {
				t.Errorf("%s %s does not say how it fails", method, path)
			}
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s has the operation id %q", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
}
