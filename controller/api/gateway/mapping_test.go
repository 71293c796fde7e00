package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/ingot-metal/ingot/internal/apijson"
)

// binding is one way to reach a call, as in api/gateway.yaml.
type binding struct {
	full           string
	method         protoreflect.MethodDescriptor
	verb, template string
	body           string
}

type rule struct {
	Selector                      string
	Get, Put, Post, Delete, Patch string
	Body                          string
	AdditionalBindings            []rule `yaml:"additional_bindings"`
}

func (r rule) verb() (verb, template string) {
	for verb, template := range map[string]string{
		http.MethodGet: r.Get, http.MethodPut: r.Put, http.MethodPost: r.Post, http.MethodDelete: r.Delete,
		http.MethodPatch: r.Patch,
	} {
		if template != "" {
			return verb, template
		}
	}
	return "", ""
}

// bindings reads the mapping itself, not what was generated from it.
func bindings(t *testing.T) []binding {
	t.Helper()
	raw, err := os.ReadFile("../../../api/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ HTTP struct{ Rules []rule } }
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var out []binding
	for _, top := range doc.HTTP.Rules {
		dot := strings.LastIndexByte(top.Selector, '.')
		full := "/" + top.Selector[:dot] + "/" + top.Selector[dot+1:]
		m, err := methodOf(full)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append([]rule{top}, top.AdditionalBindings...) {
			b := binding{full: full, method: m, body: r.Body}
			b.verb, b.template = r.verb()
			out = append(out, b)
		}
	}
	if len(out) < 60 {
		t.Fatalf("found %d bindings: the mapping has another form", len(out))
	}
	return out
}

func (b binding) name() string { return b.verb + b.template }

// pathFields are the fields in the path, such as machine.machine_id.
func (b binding) pathFields() (out []string) {
	for _, s := range strings.Split(b.template, "/") {
		if strings.HasPrefix(s, "{") {
			out = append(out, strings.Trim(s, "{}"))
		}
	}
	return out
}

// request spreads a message over path, query and body.
func (b binding) request(t *testing.T, base string, m proto.Message) *http.Request {
	t.Helper()
	rest := proto.Clone(m)
	path := b.template
	for _, name := range b.pathFields() {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(take(rest.ProtoReflect(), name).String()), 1)
	}
	var body []byte
	switch b.body {
	case "*":
		body = mustJSON(t, rest)
		rest = nil
	case "":
	default:
		fd := rest.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(b.body))
		body = mustJSON(t, rest.ProtoReflect().Get(fd).Message().Interface())
		rest.ProtoReflect().Clear(fd)
	}
	if rest != nil {
		if q := queryOf(t, rest.ProtoReflect()); len(q) > 0 {
			path += "?" + q.Encode()
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), b.verb, base+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// take removes a field by its path and returns its value.
func take(m protoreflect.Message, path string) protoreflect.Value {
	first, rest, nested := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(first))
	if nested {
		return take(m.Mutable(fd).Message(), rest)
	}
	v := m.Get(fd)
	m.Clear(fd)
	return v
}

func mustJSON(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := apijson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// queryOf writes the fields that are set as query parameters.
func queryOf(t *testing.T, m protoreflect.Message) url.Values {
	t.Helper()
	q := url.Values{}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(fd.Name())
		switch {
		case fd.IsMap():
			t.Fatalf("%s is a map: a call with one takes a body", fd.FullName())
		case fd.IsList():
			for i := range v.List().Len() {
				q.Add(name, scalarText(t, fd, v.List().Get(i)))
			}
		default:
			q.Set(name, scalarText(t, fd, v))
		}
		return true
	})
	return q
}

func scalarText(t *testing.T, fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	t.Helper()
	switch {
	// names as in the protos, not as in JSON
	case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.FieldMask":
		return strings.Join(v.Message().Interface().(*fieldmaskpb.FieldMask).GetPaths(), ",")
	case fd.Message() != nil: // Timestamp and Duration are strings in JSON
		return strings.Trim(string(mustJSON(t, v.Message().Interface())), `"`)
	case fd.Enum() != nil:
		return string(fd.Enum().Values().ByNumber(v.Enum()).Name())
	}
	return fmt.Sprint(v.Interface())
}
