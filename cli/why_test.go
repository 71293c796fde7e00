package cli

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// ExplainMachine knows one machine that waits, one that needs an operator, one that is stuck, and an operation.
func (f *fakeServer) ExplainMachine(
	_ context.Context, r *pb.ExplainMachineRequest,
) (*pb.ExplainMachineResponse, error) {
	f.mu.Lock()
	f.sent = append(f.sent, r)
	f.mu.Unlock()
	switch {
	case r.GetMachineId() == "m-waits" || r.GetOperationId() == "op-1":
		return &pb.ExplainMachineResponse{MachineId: "m-waits", Summary: "REBOOT, step reboot, waits", WaitsOn: "bmc",
			OperationId: "op-1"}, nil
	case r.GetMachineId() == "m-needs":
		return &pb.ExplainMachineResponse{MachineId: "m-needs", Summary: "failed", WaitsOn: "operator",
			Reason: "BMC_AUTH_FAILED"}, nil
	case r.GetMachineId() == "m-stuck":
		return &pb.ExplainMachineResponse{MachineId: "m-stuck", Summary: "waits", WaitsOn: "agent", Stuck: true}, nil
	}
	return nil, refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "no such machine", nil)
}

func TestWhy(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		out  string
	}{
		"why m-waits":         {0, "REBOOT, step reboot, waits\n\nMachine:"},
		"why m-waits --check": {0, "WaitsOn:"},
		"why op-1":            {0, "op-1"},
		"why m-needs":         {0, "BMC_AUTH_FAILED"},
		"why m-needs --check": {4, "BMC_AUTH_FAILED"},
		"why m-stuck --check": {4, "stuck"},
		"why m-none --check":  {3, ""},
		"why m-needs -o json": {0, `"reason": "BMC_AUTH_FAILED"`},
		"why m-needs -o name": {0, "m-needs\n"},
		"why":                 {1, ""},
	} {
		got := fleet().run(t, strings.Fields(line)...)
		if got.code != want.code || !strings.Contains(got.out, want.out) {
			t.Errorf("%s: exit code %d, want %d; %q in\n%s%s", line, got.code, want.code, want.out, got.out, got.err)
		}
	}
}

func TestWhyAsksForWhatWasNamed(t *testing.T) {
	for subject, want := range map[string]*pb.ExplainMachineRequest{
		"op-1": {OperationId: "op-1"}, "m-waits": {MachineId: "m-waits"},
	} {
		f := fleet()
		f.run(t, "why", subject)
		if got, ok := f.sent[0].(*pb.ExplainMachineRequest); !ok || got.GetMachineId() != want.GetMachineId() ||
			got.GetOperationId() != want.GetOperationId() {
			t.Errorf("%s asked for %v", subject, f.sent)
		}
	}
}
