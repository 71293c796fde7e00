package invariants

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// gatewaySelectors gives the calls that api/gateway.yaml maps, by "service/Method".
func gatewaySelectors(t *testing.T) []string {
	t.Helper()
	var doc struct {
		HTTP struct{ Rules []struct{ Selector string } }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "api/gateway.yaml")), &doc); err != nil {
		t.Fatalf("read api/gateway.yaml: %v", err)
	}
	var out []string
	for _, r := range doc.HTTP.Rules {
		dot := strings.LastIndexByte(r.Selector, '.')
		out = append(out, r.Selector[:dot]+"/"+r.Selector[dot+1:])
	}
	return out
}

// Whoever has no gRPC can do what everybody else can: each call of the frontpage is reachable over HTTP, but for those
// that stream from the client, which HTTP gateways cannot carry.
func TestEveryCallIsReachableOverHTTP(t *testing.T) {
	mapped := gatewaySelectors(t)
	for name, m := range methodsOf(t, frontpage) {
		switch is := slices.Contains(mapped, name); {
		case is && m.IsStreamingClient():
			t.Errorf("%s streams from the client and is mapped in api/gateway.yaml", name)
		case !is && !m.IsStreamingClient():
			t.Errorf("%s is not mapped: give it a path in api/gateway.yaml and run make generate", name)
		}
	}
	slices.Sort(mapped)
	for i, name := range mapped {
		if i > 0 && mapped[i-1] == name {
			t.Errorf("%s is mapped twice; use additional_bindings", name)
		}
	}
}
