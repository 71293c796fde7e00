package apijson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Fault is one thing that is wrong with a document.
type Fault struct {
	// Path is where, such as "spec.mac_addresses[0]"; empty where it is the document as a whole.
	Path string
	// Description is one sentence.
	Description string
}

// Faults are all that is wrong with a document, in the order of their paths.
type Faults []Fault

// Error names each path with its description.
func (fs Faults) Error() string {
	lines := make([]string, 0, len(fs))
	for _, f := range fs {
		lines = append(lines, strings.TrimPrefix(f.Path+": "+f.Description, ": "))
	}
	return strings.Join(lines, "; ")
}

// Unmarshal reads what Marshal writes, and what people write: field names of the .proto files or lower camel case, and
// enum values with or without their prefix, in any case. Whatever the message has no field for is a fault. Its error is
// of type Faults.
func Unmarshal(raw []byte, m proto.Message) error {
	if protojson.Unmarshal(raw, m) == nil {
		return nil
	}
	tree, err := parse(raw)
	if err != nil {
		return Faults{{Description: err.Error()}}
	}
	var w walk
	tree = w.message(m.ProtoReflect().Type().New(), "", tree)
	if len(w.found) > 0 {
		return w.found
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return Faults{{Description: err.Error()}}
	}
	proto.Reset(m)
	if err := protojson.Unmarshal(plain, m); err != nil {
		return Faults{{Description: readable(err)}}
	}
	return nil
}

// walk goes through a document beside the descriptor of its message, writes enum values as protojson wants them, and
// collects what does not fit.
type walk struct{ found Faults }

func (w *walk) fault(path, format string, args ...any) {
	w.found = append(w.found, Fault{Path: path, Description: fmt.Sprintf(format, args...)})
}

// message checks an object against empty, a message of its type.
func (w *walk) message(empty protoreflect.Message, path string, v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		w.fault(path, "is not an object")
		return v
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		fd := fieldOf(empty.Descriptor(), key)
		if fd == nil {
			w.fault(join(path, key), "unknown field of %s", empty.Descriptor().Name())
			continue
		}
		if object[key] != nil {
			object[key] = w.field(empty, fd, join(path, string(fd.Name())), object[key])
		}
	}
	return object
}

func fieldOf(d protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByJSONName(key); fd != nil {
		return fd
	}
	return d.Fields().ByTextName(key)
}

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// field checks the value of one field of parent. Where it has no fields of its own, protojson itself is asked.
func (w *walk) field(parent protoreflect.Message, fd protoreflect.FieldDescriptor, path string, v any) any {
	before := len(w.found)
	items, isArray := v.([]any)
	object, isObject := v.(map[string]any)
	switch {
	case fd.IsList() && isArray:
		for i := range items {
			items[i] = w.value(fd, func() protoreflect.Message { return parent.NewField(fd).List().NewElement().Message() },
				fmt.Sprintf("%s[%d]", path, i), items[i])
		}
	case fd.IsMap() && isObject:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			object[key] = w.value(fd.MapValue(),
				func() protoreflect.Message { return parent.NewField(fd).Map().NewValue().Message() }, path+"["+key+"]",
				object[key])
		}
	case !fd.IsList() && !fd.IsMap():
		v = w.value(fd, func() protoreflect.Message { return parent.NewField(fd).Message() }, path, v)
	}
	if len(w.found) == before {
		w.probe(parent, fd, path, v)
	}
	return v
}

// value checks one value of a field, an item of a list, or a value of a map.
func (w *walk) value(fd protoreflect.FieldDescriptor, empty func() protoreflect.Message, path string, v any) any {
	switch {
	case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.FieldMask":
		return maskPaths(v)
	case fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf":
		return w.message(empty(), path, v)
	case fd.Enum() != nil:
		return enumName(fd.Enum(), v)
	}
	return v
}

// maskPaths writes the paths of a field mask in lower camel case, which is the only spelling that protojson takes.
func maskPaths(v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	words := strings.Split(text, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// probe asks protojson whether the field takes the value.
func (w *walk) probe(parent protoreflect.Message, fd protoreflect.FieldDescriptor, path string, v any) {
	one, err := json.Marshal(map[string]any{fd.JSONName(): v})
	if err == nil {
		err = protojson.Unmarshal(one, parent.New().Interface())
	}
	if err != nil {
		w.fault(path, "%s", readable(err))
	}
}

var effectiveStates = pb.MachineStatus_EffectiveState(0).Descriptor().FullName()

// enumName returns the full name of an enum's value that was written without its prefix or in lower case. What it does
// not know it leaves for protojson to refuse.
func enumName(d protoreflect.EnumDescriptor, v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	upper := strings.ToUpper(text)
	if d.FullName() == effectiveStates && upper == maintenance {
		return maintenanceIdle
	}
	prefix := strings.TrimSuffix(string(d.Values().ByNumber(0).Name()), "UNSPECIFIED")
	for _, name := range []string{upper, prefix + upper} {
		if d.Values().ByName(protoreflect.Name(name)) != nil {
			return name
		}
	}
	return v
}

// readable returns a protojson error without its prefix and its position in a text that the client did not write.
func readable(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ") // varied on purpose
	text = strings.TrimPrefix(text, "proto: ")
	if strings.HasPrefix(text, "(line ") {
		if _, rest, ok := strings.Cut(text, "): "); ok {
			text = rest
		}
	}
	if _, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(text, "syntax error (line ") {
		text = rest
	}
	return text
}
