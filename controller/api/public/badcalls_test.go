package public_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

type badCall struct {
	name   string
	kind   failure.Kind
	reason string
	field  string
	call   func(ctx context.Context, r *rig) error
}

// only drops the answer.
func only[T any](_ T, err error) error { return err }

const (
	invalid      = failure.KindInvalid
	notFound     = failure.KindNotFound
	precondition = failure.KindPrecondition
	exists       = failure.KindAlreadyExists
	unbuilt      = failure.KindUnimplemented
)

func step(name string) *pb.Step {
	return &pb.Step{Name: name, Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}
}

// everything is a picture of all machines and operations.
func (r *rig) everything() string {
	r.t.Helper()
	ms, err := r.machines.ListMachines(r.t.Context(), &pb.ListMachinesRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	ops, err := r.operations.ListOperations(r.t.Context(), &pb.ListOperationsRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range ms.GetMachines() {
		b.WriteString(m.GetMachineId() + m.GetUpdatedAt().String() + m.GetStatus().GetPhase().String() + "\n")
	}
	for _, o := range ops.GetOperations() {
		b.WriteString(o.GetOperationId() + o.GetPhase().String() + "\n")
	}
	return b.String()
}

// asOperator makes the calls of ctx those of a token with scope operate.
func asOperator(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "test-caller", "op-team", "test-scope", "operate")
}

// verbs wants these verbs in the audit log of a target, oldest first, by the tester, and no secret among them.
func (r *rig) verbs(target string, want ...string) {
	r.t.Helper()
	log, err := r.admin.ListAuditLog(r.t.Context(), &pb.ListAuditLogRequest{TargetId: target})
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, e := range log.GetEntries() {
		got = append(got, e.GetVerb())
		if e.GetActor() != "tester" || strings.Contains(string(e.GetEventData()), "whsec_") {
			r.t.Errorf("audit entry %v %s", e, e.GetEventData())
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("audit log of %s: %v, want %v", target, got, want)
	}
}

func move(id, request string, to pb.NodeState) *pb.TransitionNodeRequest {
	return &pb.TransitionNodeRequest{NodeId: id, RequestId: request, State: to}
}

func walk(t *testing.T, page func(token string) (next string, err error)) {
	t.Helper()
	for token := ""; ; {
		next, err := page(token)
		if err != nil {
			t.Fatal(err)
		}
		if token = next; token == "" {
			return
		}
	}
}
