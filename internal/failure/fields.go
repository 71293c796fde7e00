package failure

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ofRequest returns the error with its faulty fields named as the request has them. A rule of the domain names a fact,
// which requests have at different places; a form looks for its own field. What the request does not have keeps the
// name of the fact.
func (e *Error) ofRequest(req any) *Error {
	m, ok := req.(proto.Message)
	if !ok || len(e.Fields) == 0 {
		return e
	}
	c := e.clone()
	for i, f := range c.Fields {
		if path := fieldOf(m.ProtoReflect().Descriptor(), f.Path); path != "" {
			c.Fields[i].Path = path
		}
	}
	return c
}

// fieldOf returns the path of the request's field that holds the fact, "" for none. It looks for a field of that name,
// also in the request's messages, and then for a list of such facts, a reference among its parameters, its filter, and
// its only id.
func fieldOf(request protoreflect.MessageDescriptor, fact string) string {
	if path := knownPart(request, fact); path != "" {
		return path
	}
	if path := below(request, fact, 2); path != "" {
		return path
	}
	if _, _, inner := cutStep(fact); inner != "" {
		return knownPart(request, inner)
	}
	if list := request.Fields().ByName(protoreflect.Name(fact + "s")); list != nil && list.IsList() {
		return string(list.Name())
	}
	// No other fact is known to be a parameter.
	if params := request.Fields().ByName("params"); params != nil && params.IsMap() && strings.HasSuffix(fact, "_ref") {
		return "params[" + fact + "]"
	}
	if request.Fields().ByName("filter") != nil {
		return "filter"
	}
	if strings.HasSuffix(fact, "_id") {
		return onlyID(request)
	}
	return ""
}

// below looks for the fact in the messages of a request, the nearest first.
func below(in protoreflect.MessageDescriptor, fact string, depth int) string {
	var deeper []protoreflect.FieldDescriptor
	for i := range in.Fields().Len() {
		f := in.Fields().Get(i)
		if f.Message() == nil || f.IsList() || f.IsMap() {
			continue
		}
		if path := knownPart(f.Message(), fact); path != "" {
			return string(f.Name()) + "." + path
		}
		deeper = append(deeper, f)
	}
	for _, f := range deeper {
		if depth == 1 {
			break
		}
		if path := below(f.Message(), fact, depth-1); path != "" {
			return string(f.Name()) + "." + path
		}
	}
	return ""
}

// onlyID returns the one field of the request that identifies something, "" where there are none or several.
func onlyID(request protoreflect.MessageDescriptor) (id string) {
	for i := range request.Fields().Len() {
		name := string(request.Fields().Get(i).Name())
		if !strings.HasSuffix(name, "_id") || name == "request_id" {
			continue
		}
		if id != "" {
			return ""
		}
		id = name
	}
	return id
}

// knownPart returns the longest beginning of a path, such as spec.params[mode].name, that leads to a field of the
// message.
func knownPart(in protoreflect.MessageDescriptor, path string) string {
	at := 0
	for rest := path; in != nil && rest != ""; {
		name, key, after := cutStep(rest)
		f := in.Fields().ByName(protoreflect.Name(name))
		if f == nil || key != "" && !f.IsList() && !f.IsMap() {
			break
		}
		in = f.Message()
		if f.IsMap() {
			in = f.MapValue().Message()
			if key == "" { // labels.rack names a key, too
				_, _, after = cutStep(after)
			}
		}
		at, rest = len(path)-len(after), after
	}
	return strings.TrimSuffix(path[:at], ".")
}

// cutStep cuts the first step off a path: its name, its key in brackets, and what follows.
func cutStep(path string) (name, key, after string) {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, "", ""
	}
	name, after = path[:end], path[end:]
	if strings.HasPrefix(after, "[") {
		// A bracket that is not closed holds all the rest: Cut's third result is not needed.
		key, after, _ = strings.Cut(after[1:], "]")
	}
	return name, key, strings.TrimPrefix(after, ".")
}
