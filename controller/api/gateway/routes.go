package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/failure"
)

// operation is what one method of a path takes.
type operation struct {
	// call is the full method of gRPC, such as /baremetal.v1.MachineService/GetMachine.
	call  string
	query []string
	body  bool
	// stream is true where the answer is one.
	stream bool
	// serve, if set, answers in the place of the generated handler. last is the last segment of the path, escaped.
	serve func(w http.ResponseWriter, r *http.Request, op operation, last string)
}

// checkQuery refuses parameters that the call has no field for, and those that it takes once and that stand there
// twice.
func (o operation) checkQuery(q url.Values) *failure.Error {
	var bad *failure.Error
	for _, name := range sortedKeys(q) {
		if slices.Contains(o.query, name) {
			continue
		}
		if bad == nil {
			bad = failure.Invalid(reasonInvalidField, "unknown query parameter %s", name)
		}
		bad = bad.WithField(name, "no such query parameter")
	}
	return bad
}

func sortedKeys(q url.Values) []string {
	keys := make([]string, 0, len(q))
	for k := range q {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// route is one path with its methods.
type route struct {
	segments []string
	methods  methods
}

type routes []route

// readRoutes reads the paths out of an OpenAPI 3.1 document.
func readRoutes(document []byte) (routes, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			Call        string `json:"x-grpc-method"`
			Parameters  []struct{ Name, In string }
			RequestBody json.RawMessage
			Responses   map[string]struct{ Content map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	var out routes
	for path, described := range doc.Paths {
		r := route{segments: split(path), methods: methods{}}
		for method, d := range described {
			op := operation{call: d.Call, body: len(d.RequestBody) > 0}
			_, op.stream = d.Responses["200"].Content[streamType]
			for _, p := range d.Parameters {
				if p.In == "query" {
					op.query = append(op.query, p.Name)
				}
			}
			r.methods[strings.ToUpper(method)] = op
		}
		out = append(out, r)
	}
	return out, nil
}

func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

// find returns the methods of the route that an escaped path has, or nil, and the path's last segment.
func (rs routes) find(path string) (methods methods, last string) {
	segments := split(path)
	for _, r := range rs {
		if r.matches(segments) {
			return r.methods, segments[len(segments)-1]
		}
	}
	return nil, ""
}

// methods are what one path takes, by their names in upper case.
type methods map[string]operation

// of returns what a method of HTTP calls. HEAD is GET without its body (RFC 9110, section 9.3.2).
func (m methods) of(method string) (operation, bool) {
	if op, ok := m[method]; ok || method != http.MethodHead {
		return op, ok
	}
	op, ok := m[http.MethodGet]
	return op, ok && !op.stream
}

// allowed returns the value of the header Allow.
func (m methods) allowed() string {
	all := []string{http.MethodOptions}
	for name := range m {
		all = append(all, name)
	}
	if _, ok := m.of(http.MethodHead); ok {
		all = append(all, http.MethodHead)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (r route) matches(segments []string) bool {
	return slices.EqualFunc(r.segments, segments, func(pattern, segment string) bool {
		return pattern == segment || strings.HasPrefix(pattern, "{") && segment != ""
	})
}
