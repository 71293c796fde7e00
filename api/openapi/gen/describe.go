package main

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// open are the calls that need no token.
var open = []string{"AccessService_GetSignOn"}

// ways are the operation ids of calls that are reached in a second way, where the generator counts.
var ways = map[string]string{
	"MachineService_GetMachine2":    "MachineService_GetMachineByExternalId",
	"MachineService_UpdateMachine2": "MachineService_PatchMachine",
}

// describe adds to the OpenAPI 3.1 document what the .proto files cannot say: how calls fail, which need no token, what
// the server sets, and versions as entity tags.
func describe(doc object) {
	components := asObject(doc["components"])
	all := asObject(components["schemas"])
	failures(all)
	for _, schema := range all {
		for _, property := range asObject(asObject(schema)["properties"]) {
			serverOwned(asObject(property))
		}
	}
	components["responses"] = object{
		"Error": response("Why the call was refused. The reason of ErrorInfo says it; the HTTP status is that of its code."),
		"VersionConflict": response("Another version is stored than the one that If-Match or expected_version names " +
			"(reason VERSION_CONFLICT), or there is such a thing, and If-None-Match asks for none."),
	}
	components["parameters"] = object{
		"IfMatch": header("If-Match", "The ETag that was read: the write is refused where another version is stored. "+
			"Instead of expected_version."),
		"IfAbsent": header("If-None-Match", "*: the write is refused where there is such a thing. Instead of create_only."),
		"IfNoneMatch": header("If-None-Match", "The ETag of an answer that the client has: the answer is 304 where it "+
			"would be the same."),
	}
	components["headers"] = object{"ETag": object{
		"description": "The version of the thing where it has one, and of a read a digest of the document, in quotes.",
		"schema":      object{"type": "string"},
	}}
	for _, item := range asObject(doc["paths"]) {
		for method, op := range asObject(item) {
			describeCall(method, asObject(op), all)
		}
	}
}

func response(text string) object {
	return object{"description": text, "content": content(jsonType, object{"$ref": schemas + errorSchema})}
}

func header(name, text string) object {
	return object{"name": name, "in": "header", "required": false, "schema": object{"type": "string"},
		"description": text}
}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

func describeCall(method string, op, all object) {
	responses := asObject(op["responses"])
	responses["default"], responses["4XX"] = reference("responses", "Error"), reference("responses", "Error")
	id, _ := op["operationId"].(string)
	service, call, _ := strings.Cut(strings.TrimRight(id, "23456789"), "_")
	op["x-grpc-method"] = "/baremetal.v1." + service + "/" + call
	if way, ok := ways[id]; ok {
		op["operationId"] = way
	}
	if slices.Contains(open, id) {
		op["security"] = []any{object{}}
	}
	good := asObject(responses["200"])
	read := method == "get" && answer(good) != nil
	if read || has(answer(good), all, "version", "int64") {
		good["headers"] = object{"ETag": reference("headers", "ETag")}
	}
	if read {
		responses["304"] = object{"description": "The answer is the one whose ETag If-None-Match has."}
		add(op, reference("parameters", "IfNoneMatch"))
	}
	if takes(op, all, "expected_version", "int64") {
		add(op, reference("parameters", "IfMatch"))
		responses["412"] = reference("responses", "VersionConflict")
	}
	if takes(op, all, "create_only", "") {
		add(op, reference("parameters", "IfAbsent"))
		responses["412"] = reference("responses", "VersionConflict")
	}
}

func add(op object, parameter object) {
	list, _ := op["parameters"].([]any)
	op["parameters"] = append(list, parameter)
}

// takes reports whether a call has a field of a format, in its query or its body.
func takes(op, all object, field, format string) bool {
	list, _ := op["parameters"].([]any)
	return slices.ContainsFunc(list, func(p any) bool { return asObject(p)["name"] == field }) ||
		has(asObject(op["requestBody"]), all, field, format)
}

// answer is a response without those that are streams.
func answer(response object) object {
	if asObject(response["content"])[streamType] != nil {
		return nil
	}
	return response
}

// has reports whether a body's JSON has a field of a format.
func has(body, all object, field, format string) bool {
	schema := asObject(asObject(asObject(body["content"])[jsonType])["schema"])
	if ref, ok := schema["$ref"].(string); ok {
		schema = asObject(all[strings.TrimPrefix(ref, schemas)])
	}
	f := asObject(asObject(schema["properties"])[field])
	got, _ := f["format"].(string)
	return f != nil && got == format
}

// serverOwned marks what clients cannot write.
func serverOwned(property object) {
	text, _ := property["description"].(string)
	if strings.HasPrefix(text, "Output.") || strings.HasPrefix(text, "Set by the server") ||
		strings.Contains(text, "read-only") {
		property["readOnly"] = true
	}
}

// failures describes google.rpc.Status with the details that this API adds, and the closed set of reasons.
func failures(all object) {
	var reasons []any
	for number := range int32(1000) {
		if name, ok := baremetalv1.Reason_name[number]; ok && number > 0 {
			reasons = append(reasons, name)
		}
	}
	text := func(description string) object { return object{"type": "string", "description": description} }
	all["baremetal.v1.Reason"] = object{"type": "string", "enum": reasons,
		"description": "Why a call was refused. Switch on it, never on a message. New ones may come; none goes away."}
	all["google.rpc.ErrorInfo"] = detail("ErrorInfo", object{
		"reason":   object{"$ref": schemas + "baremetal.v1.Reason"},
		"domain":   object{"const": "ingot.dev"},
		"metadata": object{"type": "object", "additionalProperties": object{"type": "string"}},
	}, "reason", "domain")
	all["google.rpc.BadRequest"] = detail("BadRequest", object{"field_violations": object{
		"type": "array", "items": object{"type": "object", "required": []any{"field", "description"}, "properties": object{
			"field": text("Path of the field that is at fault."), "description": text("What is wrong with it."),
		}},
	}}, "field_violations")
	all["google.rpc.RetryInfo"] = detail("RetryInfo", object{
		"retry_delay": text("How long to wait before the next try, such as \"1.5s\"."),
	}, "retry_delay")
	asObject(all[errorSchema])["required"] = []any{"code", "message"}
	asObject(all["google.protobuf.Any"])["required"] = []any{"@type"}
	status := asObject(asObject(all[errorSchema])["properties"])
	asObject(all[errorSchema])["description"] = "How every call fails."
	asObject(status["code"])["description"] = "Code of gRPC, as in google/rpc/code.proto."
	asObject(status["message"])["description"] = "For people. It may change."
	status["details"] = object{"type": "array", "items": object{"anyOf": []any{
		object{"$ref": schemas + "google.rpc.ErrorInfo"}, object{"$ref": schemas + "google.rpc.BadRequest"},
		object{"$ref": schemas + "google.rpc.RetryInfo"}, object{"$ref": schemas + "google.protobuf.Any"},
	}}, "description": "One ErrorInfo; BadRequest where fields are at fault; RetryInfo where waiting helps."}
}

func detail(name string, properties object, required ...any) object {
	properties["@type"] = object{"const": "type.googleapis.com/google.rpc." + name}
	return object{"type": "object", "required": append([]any{"@type"}, required...), "properties": properties}
}
