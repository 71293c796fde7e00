package machine_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestReadMask: a read returns the fields that the mask names, with the id and the mark of a tombstone. What the caller
// did wrong, or may not, is refused as without a mask.
func TestReadMask(t *testing.T) {
	t.Parallel()
	r := publictest.NewRig(t)
	ctx := t.Context()
	stored := r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"},
		Spec: &pb.MachineSpec{Rack: "r1", Site: "dallas"}})
	for name, c := range map[string]struct {
		paths []string
		want  *pb.Machine
	}{
		"nothing":       {nil, stored},
		"one field":     {[]string{"spec.rack"}, &pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Rack: "r1"}}},
		"labels":        {[]string{"labels"}, &pb.Machine{MachineId: "m-1", Labels: stored.GetLabels()}},
		"a field twice": {[]string{"spec.rack", "spec"}, &pb.Machine{MachineId: "m-1", Spec: stored.GetSpec()}},
		"the id":        {[]string{"machine_id"}, &pb.Machine{MachineId: "m-1"}},
		"the state": {[]string{"status.effective_state", "version"}, &pb.Machine{MachineId: "m-1",
			Version: stored.GetVersion(), Status: &pb.MachineStatus{EffectiveState: stored.GetStatus().GetEffectiveState()}}},
	} {
		mask := &fieldmaskpb.FieldMask{Paths: c.paths}
		m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1", ReadMask: mask})
		if err != nil || !proto.Equal(m, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, m, err, c.want)
		}
		list, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{ReadMask: mask})
		if err != nil || len(list.GetMachines()) != 1 || !proto.Equal(list.GetMachines()[0], c.want) ||
			list.GetNextCursor() == "" {
			t.Errorf("%s: %v, %v, want %v", name, list, err, c.want)
		}
	}
	for _, path := range []string{"colour", "spec.colour", "labels.env", "machine_id.x", "Spec", "", "status.conditions.type"} {
		mask := &fieldmaskpb.FieldMask{Paths: []string{"machine_id", path}}
		_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1", ReadMask: mask})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "read_mask")
		_, err = r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{ReadMask: mask})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "read_mask")
	}
	mask := &fieldmaskpb.FieldMask{Paths: []string{"spec"}}
	_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-2", ReadMask: mask})
	publictest.Wants(t, err, failure.KindNotFound, "MACHINE_NOT_FOUND", "machine_id")
	_, err = r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: "x", ReadMask: mask})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter")

	head, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1"}); err != nil {
		t.Fatal(err)
	}
	changed, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Cursor: head.GetNextCursor(), ReadMask: mask})
	if err != nil || len(changed.GetMachines()) != 1 || changed.GetMachines()[0].GetDeletedAt() == nil {
		t.Errorf("a tombstone under a mask: %v, %v", changed, err)
	}
}
