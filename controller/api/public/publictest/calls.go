package publictest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Step is a step of a plan that reboots.
func Step(name string) *pb.Step {
	return &pb.Step{Name: name, Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}
}

// Everything is a picture of all machines and operations.
func (r *Rig) Everything() string {
	r.T.Helper()
	ms, err := r.Machines.ListMachines(r.T.Context(), &pb.ListMachinesRequest{})
	if err != nil {
		r.T.Fatal(err)
	}
	ops, err := r.Operations.ListOperations(r.T.Context(), &pb.ListOperationsRequest{})
	if err != nil {
		r.T.Fatal(err)
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

// AsOperator makes the calls of ctx those of a token with scope operate.
func AsOperator(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "test-caller", "op-team", "test-scope", "operate")
}

// Verbs wants these verbs in the audit log of a target, oldest first, by the tester, and no secret among them.
func (r *Rig) Verbs(target string, want ...string) {
	r.T.Helper()
	log, err := r.Admin.ListAuditLog(r.T.Context(), &pb.ListAuditLogRequest{TargetId: target})
	if err != nil {
		r.T.Fatal(err)
	}
	var got []string
	for _, e := range log.GetEntries() {
		got = append(got, e.GetVerb())
		if e.GetActor() != "tester" || strings.Contains(string(e.GetEventData()), "whsec_") {
			r.T.Errorf("audit entry %v %s", e, e.GetEventData())
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		r.T.Errorf("audit log of %s: %v, want %v", target, got, want)
	}
}

// Move is a request to move a node.
func Move(id, request string, to pb.NodeState) *pb.TransitionNodeRequest {
	return &pb.TransitionNodeRequest{NodeId: id, RequestId: request, State: to}
}

// Walk reads the pages of a list to the end.
func Walk(t *testing.T, page func(token string) (next string, err error)) {
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
