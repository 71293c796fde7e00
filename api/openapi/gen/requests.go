package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// requestsFile is what a test in controller/api/public has found out from the server.
//
//go:embed requests.json
var requestsFile []byte

// request describes one call: the fields that the server refuses it without, and a request that the server takes.
type request struct {
	Call     string
	Required []string
	Example  object
}

// bodyField is the key, until requests are described, of the field that a body is: "body" for the whole request.
const bodyField = "x-field"

// requests describes what each call requires, with an example, and marks the calls that are deprecated.
func requests(doc object) error {
	var list []request
	if err := json.Unmarshal(requestsFile, &list); err != nil {
		return fmt.Errorf("read requests.json: %w", err)
	}
	all := asObject(asObject(doc["components"])["schemas"])
	for _, op := range operations(doc) {
		method, _ := op["x-grpc-method"].(string)
		call := strings.Replace(strings.TrimPrefix(method, "/baremetal.v1."), "/", ".", 1)
		i := slices.IndexFunc(list, func(r request) bool { return r.Call == call })
		if i < 0 {
			return fmt.Errorf("requests.json has no %s: run the test of controller/api/public that writes it", call)
		}
		if m := named[protoreflect.MethodDescriptor]("baremetal.v1." + call); m != nil {
			if options, ok := m.Options().(*descriptorpb.MethodOptions); ok && options.GetDeprecated() {
				op["deprecated"] = true
			}
		}
		if err := list[i].describe(op, all); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	return nil
}

// describe writes into an operation what it requires. An example is put where the path, the query and the body have it.
func (r request) describe(op, all object) error {
	example := asObject(clone(r.Example))
	if example == nil {
		example = object{}
	}
	body := asObject(op["requestBody"])
	field, _ := body[bodyField].(string)
	delete(body, bodyField)
	list, _ := op["parameters"].([]any)
	inPath, need := map[string]bool{}, wants{}
	for _, p := range list {
		p := asObject(p)
		name, _ := p["name"].(string)
		if p["in"] == "path" {
			inPath[name] = true
		}
		if p["in"] == "query" && slices.Contains(r.Required, name) {
			p["required"] = true
		}
		if value := cut(example, name, p["in"] == "path"); value != nil && p["in"] != "header" {
			p["example"] = value
		}
	}
	if body == nil {
		return nil
	}
	for _, path := range r.Required {
		words := strings.Split(path, ".")
		if inPath[words[len(words)-1]] {
			continue
		}
		if field != "body" {
			if words[0] != field {
				return fmt.Errorf("%s is required, and not in the body %s", path, field)
			}
			words = words[1:]
		}
		need.add(words)
	}
	media := asObject(asObject(body["content"])[jsonType])
	if field != "body" {
		example = asObject(example[field])
	}
	if example == nil {
		example = object{}
	}
	media["example"] = example
	return need.into(media, all)
}

// cut takes a field out of an example and returns it. In a path a parameter may be of an inner message.
func cut(example object, name string, deep bool) any {
	if value, ok := example[name]; ok {
		delete(example, name)
		return value
	}
	if deep {
		for _, inner := range example {
			if value := cut(asObject(inner), name, false); value != nil {
				return value
			}
		}
	}
	return nil
}

// wants are the required members of an object, each with its own required members.
type wants map[string]wants

func (w wants) add(path []string) {
	if len(path) == 0 {
		return
	}
	if w[path[0]] == nil {
		w[path[0]] = wants{}
	}
	w[path[0]].add(path[1:])
}

// names returns the members as JSON has them.
func (w wants) names() (out []any) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		out = append(out, name)
	}
	return out
}

// into makes a body's schema require them: in the schema itself where it is of this call alone, else beside it.
func (w wants) into(media, all object) error {
	if len(w) == 0 {
		return nil
	}
	schema := asObject(media["schema"])
	ref, isRef := schema["$ref"].(string)
	if isRef && !strings.HasSuffix(ref, "Body") && !strings.HasSuffix(ref, "Request") {
		media["schema"] = object{"allOf": []any{schema, w.schema()}}
		return nil
	}
	if isRef {
		schema = asObject(all[strings.TrimPrefix(ref, schemas)])
	}
	if schema["required"] != nil {
		return fmt.Errorf("the schema of the body has required fields already: %v", schema["required"])
	}
	schema["required"] = w.names()
	properties := asObject(schema["properties"])
	for name, inner := range w {
		property := asObject(properties[name])
		if property == nil {
			return fmt.Errorf("the body has no %s", name)
		}
		if len(inner) > 0 {
			properties[name] = object{"description": property["description"], "allOf": []any{property, inner.schema()}}
			delete(property, "description")
		}
	}
	return nil
}

// schema is one that requires the members.
func (w wants) schema() object {
	out := object{"type": "object", "required": w.names()}
	for name, inner := range w {
		if len(inner) > 0 {
			if out["properties"] == nil {
				out["properties"] = object{}
			}
			asObject(out["properties"])[name] = inner.schema()
		}
	}
	return out
}
