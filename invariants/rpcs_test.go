package invariants

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	// The descriptors of the three listeners.
	_ "github.com/ingot-metal/ingot/api/baremetal/v1"
	_ "github.com/ingot-metal/ingot/api/enroll/v1"
	_ "github.com/ingot-metal/ingot/api/fleet/v1"
)

// frontpage is the package whose calls start work on machines.
const frontpage = protoreflect.FullName("baremetal.v1")

// methodsOf returns the methods of all services of a proto package, by "service/Method".
func methodsOf(t *testing.T, pkg protoreflect.FullName) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	methods := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				methods[string(service.FullName())+"/"+string(m.Name())] = m
			}
		}
		return true
	})
	if len(methods) == 0 {
		t.Fatalf("no methods in %s", pkg)
	}
	return methods
}

// repeatable are calls that start no work and take a request_id all the same: what they make cannot be asked for again
// without one.
var repeatable = []string{"RegisterMachine", "IssueBootstrapToken", "CreateSelection"}

// A call that starts work can be repeated without fear only if it carries the caller's key and answers with the handle
// of the work. What does not start work stands in one committed list, so that leaving a request_id out is a decision.
func TestCallsThatStartWorkAreIdempotent(t *testing.T) {
	exempt := readLines(t, "rpcs_without_request_id.txt")
	methods := methodsOf(t, frontpage)
	for name, m := range methods {
		field := m.Input().Fields().ByName("request_id")
		listed := slices.Contains(exempt, name)
		switch {
		case field == nil && !listed:
			t.Errorf("%s takes no request_id and is not in rpcs_without_request_id.txt", name)
		case field != nil && listed:
			t.Errorf("%s takes a request_id and is in rpcs_without_request_id.txt", name)
		case field != nil && field.Kind() != protoreflect.StringKind:
			t.Errorf("%s: request_id is a %s, want a string", name, field.Kind())
		case field != nil && !isHandle(m.Output().FullName()) && m.Output().FullName() != frontpage+".Rollout" &&
			!slices.Contains(repeatable, string(m.Name())):
			t.Errorf("%s takes a request_id and returns %s, want Operation, Run or Rollout", name, m.Output().FullName())
		case field == nil && isHandle(m.Output().FullName()) && !readsOrCancels(m.Name()):
			t.Errorf("%s returns %s and takes no request_id: does it start work?", name, m.Output().FullName())
		}
	}
	for _, name := range exempt {
		if _, ok := methods[name]; !ok {
			t.Errorf("rpcs_without_request_id.txt names %s, which does not exist", name)
		}
	}
	if !slices.IsSorted(exempt) || len(slices.Compact(slices.Clone(exempt))) != len(exempt) {
		t.Error("rpcs_without_request_id.txt is not sorted, or names something twice")
	}
}

func isHandle(name protoreflect.FullName) bool {
	return name == frontpage+".Operation" || name == frontpage+".Run"
}

// readsOrCancels names the calls that return a handle of work that is there already. Cancelling is idempotent by
// nature.
func readsOrCancels(name protoreflect.Name) bool {
	return slices.Contains([]protoreflect.Name{"GetOperation", "CancelOperation", "GetRun", "CancelRun"}, name)
}

// gatewaySelectors returns the calls that api/gateway.yaml maps, by "service/Method".
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

// A client without gRPC can do the same as all others: each call of the frontpage is reachable over HTTP, but for those
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
