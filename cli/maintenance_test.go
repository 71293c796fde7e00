package cli

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (f *fakeServer) EnterMaintenance(_ context.Context, r *pb.EnterMaintenanceRequest) (*pb.Operation, error) {
	f.sent = append(f.sent, proto.CloneOf(r))
	return f.start(r.GetMachineId(), r.GetRequestId())
}

func (f *fakeServer) ExitMaintenance(_ context.Context, r *pb.ExitMaintenanceRequest) (*pb.Operation, error) {
	f.sent = append(f.sent, proto.CloneOf(r))
	return f.start(r.GetMachineId(), r.GetRequestId())
}

// TestMaintenanceCommandsSendWhatTheySay, and show the operation.
func TestMaintenanceCommandsSendWhatTheySay(t *testing.T) {
	for line, want := range map[string]proto.Message{
		"enter-maintenance machine-1 --request-id r --no-wait": &pb.EnterMaintenanceRequest{MachineId: "machine-1",
			RequestId: "r"},
		"exit-maintenance machine-1 --request-id r --no-wait": &pb.ExitMaintenanceRequest{MachineId: "machine-1",
			RequestId: "r"},
	} {
		f := reimaging(pb.Operation_SUCCEEDED, nil)
		got := f.run(t, strings.Fields(line)...)
		if got.code != 0 || len(f.sent) != 1 || !proto.Equal(f.sent[0], want) || got.out != "Operation: op-1 (PENDING)\n" {
			t.Errorf("%s: sent %v, %+v", line, f.sent, got)
		}
	}
}
