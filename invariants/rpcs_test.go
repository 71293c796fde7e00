package invariants

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// The descriptors of the three listeners.
	_ "github.com/ingot-metal/ingot/api/baremetal/v1"
	_ "github.com/ingot-metal/ingot/api/enroll/v1"
	_ "github.com/ingot-metal/ingot/api/fleet/v1"
)

// frontpage is the package whose calls start work on machines.
const frontpage = protoreflect.FullName("baremetal.v1")

// methodsOf gives the methods of all services of a proto package, by "service/Method".
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
