package public_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// unknownNames has the refusal of each list of one thing, by method and field or key of the filter.
var unknownNames = map[string]string{
	"ListAgents filter machine_id":      "MACHINE_NOT_FOUND",
	"ListAgents filter site":            "SITE_NOT_FOUND",
	"ListAuditLog actor":                "AUDIT_NAME_NOT_FOUND",
	"ListAuditLog target_id":            "AUDIT_NAME_NOT_FOUND",
	"ListBMCCertificates machine_id":    "MACHINE_NOT_FOUND",
	"ListCommands machine_id":           "MACHINE_NOT_FOUND",
	"ListCommands operation_id":         "OPERATION_NOT_FOUND",
	"ListDiscovered site":               "SITE_NOT_FOUND",
	"ListOperations filter machine_id":  "MACHINE_NOT_FOUND",
	"ListRolloutMachines rollout_id":    "ROLLOUT_NOT_FOUND",
	"ListRuns filter machine_id":        "MACHINE_NOT_FOUND",
	"ListRuns filter run_id":            "OPERATION_NOT_FOUND",
	"ListSiteLeases site":               "SITE_NOT_FOUND",
	"ListWebhookDeliveries delivery_id": "DELIVERY_NOT_FOUND",
	"ListWebhookDeliveries webhook_id":  "WEBHOOK_NOT_FOUND",
	"ListWorkflows filter machine_id":   "MACHINE_NOT_FOUND",
}

// noNames are the fields of lists that name nothing.
var noNames = []string{"filter", "order_by", "page_token", "cursor", "state", "verb"}

// TestAListOfNothingThatThereIs calls every method that lists, with an unknown name in each of its fields. An empty list
// would be taken for an answer.
func TestAListOfNothingThatThereIs(t *testing.T) {
	t.Parallel()
	r := publictest.NewRig(t)
	asked := 0
	ask := func(m protoreflect.MethodDescriptor, name, field, value string) {
		want, ok := unknownNames[name]
		if !ok {
			t.Errorf("what does %s answer of a thing that does not exist? Add it to unknownNames, or the field to noNames", name)
			return
		}
		asked++
		request, answer := newMessage(t, m.Input()), newMessage(t, m.Output())
		set := request.ProtoReflect()
		set.Set(set.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOfString(value))
		err := r.Conn.Invoke(t.Context(), "/"+string(m.Parent().FullName())+"/"+string(m.Name()), request, answer)
		if e := failure.From(err); err == nil || e.Kind != failure.KindNotFound || e.Reason != want {
			t.Errorf("%s of a thing that does not exist: %v, want %s", name, err, want)
		}
	}
	for _, m := range lists(t) {
		for i := range m.Input().Fields().Len() {
			field := m.Input().Fields().Get(i)
			if field.Kind() == protoreflect.StringKind && !slices.Contains(noNames, string(field.Name())) {
				ask(m, string(m.Name())+" "+string(field.Name()), string(field.Name()), "no-such")
			}
		}
		for name := range unknownNames {
			if key, ok := strings.CutPrefix(name, string(m.Name())+" filter "); ok {
				ask(m, name, "filter", key+"=no-such")
			}
		}
	}
	if asked != len(unknownNames) {
		t.Errorf("%d of %d were asked", asked, len(unknownNames))
	}
}

// TestFiltersThatNameOneThing holds that no key of a list's filter that names a machine, a site or a run is missing in
// unknownNames. Lists of machines and nodes are left out: there a name is a filter, and no match is an answer.
func TestFiltersThatNameOneThing(t *testing.T) {
	t.Parallel()
	r := publictest.NewRig(t)
	for _, m := range lists(t) {
		filter := m.Input().Fields().ByName("filter")
		if filter == nil || m.Input().Fields().ByName("order_by") != nil || m.Name() == "ListNodes" {
			continue // its keys are the fields of its rows
		}
		for _, key := range []string{"machine_id", "site", "run_id", "operation_id", "rollout_id", "webhook_id"} {
			if _, ok := unknownNames[string(m.Name())+" filter "+key]; ok {
				continue
			}
			request, answer := newMessage(t, m.Input()), newMessage(t, m.Output())
			request.ProtoReflect().Set(filter, protoreflect.ValueOfString(key+"=no-such"))
			err := r.Conn.Invoke(t.Context(), "/"+string(m.Parent().FullName())+"/"+string(m.Name()), request, answer)
			if err == nil {
				t.Errorf("%s takes %s=no-such and returns an empty list", m.Name(), key)
			}
		}
	}
}

// TestWhatThereWasIsStillListed: of a machine that is deleted, its history; of one without any, nothing.
func TestWhatThereWasIsStillListed(t *testing.T) {
	t.Parallel()
	r := publictest.NewRig(t)
	ctx := t.Context()
	for _, id := range []string{"m-idle", "m-deleted", "m-forgotten"} {
		r.Register(&pb.Machine{MachineId: id, Spec: &pb.MachineSpec{}})
	}
	op := r.Enter("m-deleted", "r-1")
	_, err := r.Machines.CancelOperation(ctx, &pb.CancelOperationRequest{OperationId: op.GetOperationId()})
	if err != nil {
		t.Fatal(err)
	}
	r.Look(op.GetOperationId())
	for _, id := range []string{"m-deleted", "m-forgotten"} {
		if _, err := r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: id}); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{"m-idle": 0, "m-deleted": 1, "m-forgotten": 0} {
		ops, err := r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: "machine_id=" + id})
		if err != nil || len(ops.GetOperations()) != want {
			t.Errorf("operations of %s: %v, %v", id, ops, err)
		}
		running, err := r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: "phase=RUNNING,machine_id=" + id})
		if err != nil || len(running.GetOperations()) != 0 {
			t.Errorf("running operations of %s: %v, %v", id, running, err)
		}
		audit, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{TargetId: id, Verb: "REGISTER"})
		if err != nil || len(audit.GetEntries()) != 1 {
			t.Errorf("audit log of %s: %v, %v", id, audit, err)
		}
		none, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{TargetId: id, Verb: "REGISTERED"})
		if err != nil || len(none.GetEntries()) != 0 {
			t.Errorf("audit log of %s: %v, %v", id, none, err)
		}
	}
}

// lists returns the methods that list things.
func lists(t *testing.T) (out []protoreflect.MethodDescriptor) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				if m := methods.Get(j); strings.HasPrefix(string(m.Name()), "List") && m.Name() != "ListMachines" {
					out = append(out, m)
				}
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found %d methods that list", len(out))
	}
	return out
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}
