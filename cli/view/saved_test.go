package view

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
)

// Every column that the server takes for a view has a cell, and each shows something else of the machine.
func TestEveryColumnOfAViewHasACell(t *testing.T) {
	m := &pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"},
		Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"}},
		Status: &pb.MachineStatus{
			Phase: pb.MachineStatus_READY, EffectiveState: pb.MachineStatus_ATTENTION,
			NodeState: pb.NodeState_NODE_STATE_ACTIVE, LastHeartbeatAt: timestamppb.New(timestamppb.Now().AsTime().Add(-1e10)),
			Conditions: []*pb.Condition{{Type: "Reachable", Status: true}},
		},
		CreatedAt: &timestamppb.Timestamp{Seconds: 1}, UpdatedAt: &timestamppb.Timestamp{Seconds: 2},
	}
	for _, part := range []protoreflect.Message{m.GetSpec().ProtoReflect(), m.GetStatus().ProtoReflect()} {
		fields := part.Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); f.Kind() == protoreflect.StringKind && !f.IsList() {
				part.Set(f, protoreflect.ValueOfString("the "+string(f.Name())))
			}
		}
	}
	columns := append(query.Columns(), "labels.env")
	if !slices.Equal(MachineColumnNames(), query.Columns()) {
		t.Errorf("the command line has the columns %v, the server %v", MachineColumnNames(), query.Columns())
	}
	seen := map[string]string{}
	for i, cell := range (Style{}).MachineColumns([]*pb.Machine{m}, columns).Rows[0] {
		if cell == "" || seen[cell] != "" {
			t.Errorf("column %s shows %q, as does %q", columns[i], cell, seen[cell])
		}
		seen[cell] = columns[i]
	}
	if got := (Style{}).cell(m, "of-a-newer-server"); got != "" {
		t.Errorf("an unknown column shows %q", got)
	}
}
