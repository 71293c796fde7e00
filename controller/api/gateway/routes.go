package gateway

import (
	"encoding/json"
	"fmt"
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

// route is one path with its methods, by their names in upper case.
type route struct {
	segments []string
	methods  map[string]operation
}

type routes []route

// readRoutes reads the paths out of an OpenAPI 3.1 document.
func readRoutes(document []byte) (routes, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In string }
			RequestBody json.RawMessage
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	var out routes
	for path, methods := range doc.Paths {
		r := route{segments: split(path), methods: map[string]operation{}}
		for method, described := range methods {
			service, call, _ := strings.Cut(described.OperationID, "_")
			op := operation{call: "/baremetal.v1." + service + "/" + call, body: len(described.RequestBody) > 0}
			for _, p := range described.Parameters {
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

// find returns the methods of the route that an escaped path has, or nil.
func (rs routes) find(path string) map[string]operation {
	segments := split(path)
	for _, r := range rs {
		if r.matches(segments) {
			return r.methods
		}
	}
	return nil
}

func (r route) matches(segments []string) bool {
	return slices.EqualFunc(r.segments, segments, func(pattern, segment string) bool {
		return pattern == segment || strings.HasPrefix(pattern, "{") && segment != ""
	})
}
