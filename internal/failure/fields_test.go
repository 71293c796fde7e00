package failure

import (
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestAFactIsNamedAsTheRequestHasIt(t *testing.T) {
	for _, of := range []struct {
		request proto.Message
		fact    string
		want    string
	}{
		{&baremetalv1.ListMachinesRequest{}, "filter", "filter"},
		{&baremetalv1.CreateRolloutRequest{}, "filter", "spec.filter"},
		{&baremetalv1.CreateRolloutRequest{}, "spec.params[mode]", "spec.params[mode]"},
		{&baremetalv1.CreateWebhookRequest{}, "filter", "webhook.filter"},
		{&baremetalv1.UpdateMachineRequest{}, "machine_id", "machine.machine_id"},
		{&baremetalv1.UpdateMachineRequest{}, "site", "machine.spec.site"},
		{&baremetalv1.UpdateMachineRequest{}, "machine.labels.rack", "machine.labels.rack"},
		{&baremetalv1.UpdateMachineRequest{}, "machine.spec.disks[3].nonsense", "machine.spec"},
		{&baremetalv1.CreatePlanRequest{}, "plan.steps[0].kind", "plan.steps[0]"},
		{&baremetalv1.StartRunRequest{}, "image_ref", "params[image_ref]"},
		{&baremetalv1.StartWorkflowRequest{}, "type", "type"},
		{&baremetalv1.CreateSelectionRequest{}, "machine_id", "machine_ids"},
		{&baremetalv1.ListAgentsRequest{}, "site", "filter"},
		{&baremetalv1.GetRunRequest{}, "operation_id", "run_id"},
		{&baremetalv1.ApproveDiscoveredRequest{}, "machine.labels.rack", "labels.rack"},
		{&baremetalv1.ApproveDiscoveredRequest{}, "machine.machine_id", "machine_id"},
		{&baremetalv1.ExitMaintenanceRequest{}, "type", "type"},
		{&baremetalv1.GetMachineRequest{}, "machine_id[0].x", "machine_id[0].x"},
		{&baremetalv1.GetMachineRequest{}, "", ""},
		{&baremetalv1.GetMachineRequest{}, "].[..", "].[.."},
	} {
		e := Invalid("X", "x").WithField(of.fact, "wrong").ofRequest(of.request)
		got := ""
		if len(e.Fields) > 0 {
			got = e.Fields[0].Path
		}
		if got != of.want {
			t.Errorf("%s of %T is named %q, not %q", of.fact, of.request, got, of.want)
		}
	}
}
