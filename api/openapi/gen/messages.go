package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// inputSuffix ends the names of schemas of messages that stand in answers and in requests: what an answer always has, a
// request may leave out.
const inputSuffix = "Input"

// historyLine is a message whose JSON is the gateway's own: it has all fields, some of them null.
const historyLine = "baremetal.v1.NodeStateLog"

// messages separates the schemas of answers from those of requests. In answers it requires the fields without presence,
// whose defaults internal/apijson writes. It marks deprecated fields in both.
func messages(doc object) error {
	all := asObject(asObject(doc["components"])["schemas"])
	for name, schema := range all {
		if m := messageNamed(name); m != nil {
			deprecatedFields(m, asObject(schema))
		} else if e := named[protoreflect.EnumDescriptor](name); e != nil {
			deprecatedValues(e, asObject(schema))
		}
	}
	answers, requests := roots(doc)
	answers, requests = reachable(all, answers), reachable(all, requests)
	shared := map[string]bool{}
	for name := range requests {
		if answers[name] && asObject(all[name])["properties"] != nil {
			shared[name] = true
		}
	}
	for name := range shared {
		if all[name+inputSuffix] != nil {
			return fmt.Errorf("there is a %s%s already", name, inputSuffix)
		}
		all[name+inputSuffix] = toInputs(clone(all[name]), shared)
	}
	for name := range requests {
		if !answers[name] {
			toInputs(all[name], shared)
		}
	}
	for _, op := range operations(doc) {
		toInputs(op["requestBody"], shared)
	}
	for name := range answers {
		if m := messageNamed(name); m != nil {
			if required := alwaysSet(m, asObject(all[name])); len(required) > 0 {
				asObject(all[name])["required"] = required
			}
		}
	}
	return nil
}

// operations returns every operation of the document.
func operations(doc object) (out []object) {
	for _, item := range asObject(doc["paths"]) {
		for _, op := range asObject(item) {
			out = append(out, asObject(op))
		}
	}
	return out
}

// roots returns the schemas that answers and requests begin with.
func roots(doc object) (answers, requests map[string]bool) {
	answers, requests = map[string]bool{}, map[string]bool{}
	references(asObject(doc["components"])["responses"], answers)
	for _, op := range operations(doc) {
		references(op["responses"], answers)
		references(op["requestBody"], requests)
	}
	return answers, requests
}

// references adds the names of the schemas that a value refers to.
func references(v any, to map[string]bool) {
	walk(v, func(o object) {
		if ref, ok := o["$ref"].(string); ok && strings.HasPrefix(ref, schemas) {
			to[strings.TrimPrefix(ref, schemas)] = true
		}
	})
}

// reachable returns the schemas that these refer to, themselves included.
func reachable(all object, from map[string]bool) map[string]bool {
	out := map[string]bool{}
	queue := slices.Collect(maps.Keys(from))
	for len(queue) > 0 {
		name := queue[0]
		if queue = queue[1:]; out[name] {
			continue
		}
		out[name] = true
		next := map[string]bool{}
		references(all[name], next)
		queue = slices.AppendSeq(queue, maps.Keys(next))
	}
	return out
}

// toInputs lets a value refer to the requests' own schemas of shared messages.
func toInputs(v any, shared map[string]bool) any {
	walk(v, func(o object) {
		if ref, ok := o["$ref"].(string); ok && shared[strings.TrimPrefix(ref, schemas)] {
			o["$ref"] = ref + inputSuffix
		}
	})
	return v
}

// walk calls do with every object in a value.
func walk(v any, do func(object)) {
	switch v := v.(type) {
	case object:
		do(v)
		for _, child := range v {
			walk(child, do)
		}
	case []any:
		for _, child := range v {
			walk(child, do)
		}
	}
}

func clone(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for key, child := range v {
			out[key] = clone(child)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = clone(child)
		}
		return out
	}
	return v
}

// named returns the descriptor of that name; the zero value where there is none, or one of another kind.
func named[D protoreflect.Descriptor](name string) (out D) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err == nil {
		out, _ = d.(D) // another kind has no such schema
	}
	return out
}

// messageNamed returns the message of this API that a schema is of, or nil.
func messageNamed(schema string) protoreflect.MessageDescriptor {
	if !strings.HasPrefix(schema, "baremetal.v1.") {
		return nil
	}
	return named[protoreflect.MessageDescriptor](schema)
}

// alwaysSet returns the fields that every answer with the message has.
func alwaysSet(m protoreflect.MessageDescriptor, schema object) (out []any) {
	properties := asObject(schema["properties"])
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		f := m.Fields().ByName(protoreflect.Name(name))
		if m.FullName() == historyLine || f != nil && !f.HasPresence() {
			out = append(out, name)
		}
	}
	return out
}

func deprecatedFields(m protoreflect.MessageDescriptor, schema object) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		property := asObject(asObject(schema["properties"])[string(f.Name())])
		if options, ok := f.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() && property != nil {
			property["deprecated"] = true
		}
	}
}

// deprecatedValues names the values of an enum that are deprecated: JSON Schema has no word for them.
func deprecatedValues(e protoreflect.EnumDescriptor, schema object) {
	var out []any
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if options, ok := v.Options().(*descriptorpb.EnumValueOptions); ok && options.GetDeprecated() {
			out = append(out, string(v.Name()))
		}
	}
	if out != nil {
		schema["x-deprecated-values"] = out
	}
}
