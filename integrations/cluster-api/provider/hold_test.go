package provider

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// overtaken is a machine that another provider claims after every read. It refuses an old version with any error: the
// controller's own error is not tested here.
type overtaken struct {
	baremetalv1.MachineServiceClient
	m *baremetalv1.Machine
}

func (o *overtaken) GetMachine(
	context.Context, *baremetalv1.GetMachineRequest, ...grpc.CallOption,
) (*baremetalv1.Machine, error) {
	read := proto.Clone(o.m).(*baremetalv1.Machine)
	o.m.Version++
	o.m.Labels = map[string]string{ClaimLabel: "another"}
	return read, nil
}

func (o *overtaken) UpdateMachine(
	_ context.Context, r *baremetalv1.UpdateMachineRequest, _ ...grpc.CallOption,
) (*baremetalv1.Machine, error) {
	if v := r.GetExpectedVersion(); v != 0 && v != o.m.GetVersion() {
		return nil, status.Error(codes.Aborted, "the machine has changed")
	}
	o.m.Labels = r.GetMachine().GetLabels()
	return o.m, nil
}

// TestAClaimThatCameFirstStays, also where it came between the look and the write.
func TestAClaimThatCameFirstStays(t *testing.T) {
	o := &overtaken{m: &baremetalv1.Machine{MachineId: "m-1", Version: 7,
		Status: &baremetalv1.MachineStatus{EffectiveState: baremetalv1.MachineStatus_IDLE}}}
	_, h, _ := (&Fleet{machines: o}).hold(t.Context(), Claim{"m-1", "mine"}, false)
	if h == held || o.m.GetLabels()[ClaimLabel] != "another" {
		t.Errorf("held: %v; the machine carries %q", h, o.m.GetLabels()[ClaimLabel])
	}
}

// strict refuses every installation and every decommission that is validated, and records which other calls come.
type strict struct {
	baremetalv1.MachineServiceClient
	baremetalv1.WorkflowServiceClient
	asked []string
}

func (s *strict) ReimageMachine(
	_ context.Context, r *baremetalv1.ReimageMachineRequest, _ ...grpc.CallOption,
) (*baremetalv1.Operation, error) {
	if r.GetValidateOnly() {
		return nil, status.Error(codes.NotFound, "there is no image "+r.GetImageRef())
	}
	s.asked = append(s.asked, "reimage")
	return &baremetalv1.Operation{}, nil
}

func (s *strict) StartWorkflow(
	_ context.Context, r *baremetalv1.StartWorkflowRequest, _ ...grpc.CallOption,
) (*baremetalv1.Operation, error) {
	if r.GetValidateOnly() {
		return nil, status.Error(codes.NotFound, "there is no image "+r.GetParams()["image_ref"])
	}
	s.asked = append(s.asked, "workflow")
	return &baremetalv1.Operation{}, nil
}

func (s *strict) EnterMaintenance(
	context.Context, *baremetalv1.EnterMaintenanceRequest, ...grpc.CallOption,
) (*baremetalv1.Operation, error) {
	s.asked = append(s.asked, "enter")
	return &baremetalv1.Operation{}, nil
}

// TestRefusedWorkLeavesTheMachineInService, before it is installed and before it is erased.
func TestRefusedWorkLeavesTheMachineInService(t *testing.T) {
	for _, step := range []string{stepEnter, stepLeave} {
		s := &strict{}
		_, err := (&Fleet{machines: s, workflows: s}).do(t.Context(), Claim{"m-1", "mine"}, step, order{image: "debain-13"})
		if status.Code(err) != codes.NotFound || len(s.asked) != 0 {
			t.Errorf("%s: %v, and %v was asked for", step, err, s.asked)
		}
	}
}
