package cli

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var someWorkflow = &pb.Workflow{
	WorkflowId: "wf-1", MachineId: "machine-1", Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_FULL_DECOMMISSION,
	State: pb.Workflow_FAILED_RETRYABLE, CurrentStage: "cleanup_storage", AttemptCount: 2,
	FailureClass: "execution_failed",
	Reason:       "EXECUTION_FAILED", Message: "the disk said no", RecommendedAction: "resume: the disk said no",
	OperationId: "op-1",
	Stages:      []string{"disable_node", "cleanup_storage"}, CreatedAt: at(0),
	LegalActions: []pb.WorkflowAction{pb.WorkflowAction_WORKFLOW_ACTION_RESUME, pb.WorkflowAction_WORKFLOW_ACTION_CANCEL},
}

func (f *fakeServer) StartWorkflow(_ context.Context, r *pb.StartWorkflowRequest) (*pb.Operation, error) {
	f.mu.Lock()
	f.sent = append(f.sent, proto.CloneOf(r))
	f.mu.Unlock()
	if r.GetDryRun() {
		return &pb.Operation{MachineId: r.GetMachineId(),
			Params: map[string]string{"would": "the data is lost", "stages": "disable_node,cleanup_storage"}}, nil
	}
	return f.start(r.GetMachineId(), r.GetRequestId())
}

func (f *fakeServer) GetWorkflow(_ context.Context, r *pb.GetWorkflowRequest) (*pb.Workflow, error) {
	if r.GetWorkflowId() != "wf-1" {
		return nil, refuse(codes.NotFound, pb.Reason_WORKFLOW_NOT_FOUND, "there is no workflow", nil)
	}
	return someWorkflow, nil
}

func (f *fakeServer) ListWorkflows(_ context.Context, r *pb.ListWorkflowsRequest) (*pb.ListWorkflowsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, proto.CloneOf(r))
	return &pb.ListWorkflowsResponse{Workflows: []*pb.Workflow{someWorkflow}}, nil
}

func (f *fakeServer) ActOnWorkflow(_ context.Context, r *pb.ActOnWorkflowRequest) (*pb.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, proto.CloneOf(r))
	if r.GetDryRun() {
		return &pb.Operation{MachineId: "machine-1", Params: map[string]string{"would": "it goes on"}}, nil
	}
	return f.op, nil
}

func TestWorkflowReads(t *testing.T) {
	f := fleet()
	want := "WORKFLOW_ID  MACHINE_ID  MODE               STATE             STAGE            ATTEMPTS  AGE\n" +
		"wf-1         machine-1   full_decommission  FAILED_RETRYABLE  cleanup_storage  2         "
	got := f.run(t, "workflow", "list", "--machine", "machine-1", "--state", "failed-retryable", "--mode",
		"full-decommission", "--open")
	if got.code != 0 || !strings.HasPrefix(got.out, want) {
		t.Errorf("exit code %d, stderr %q, table:\n%s", got.code, got.err, got.out)
	}
	filter := f.sent[0].(*pb.ListWorkflowsRequest).GetFilter()
	if filter != "machine_id=machine-1,state=FAILED_RETRYABLE,mode=FULL_DECOMMISSION,open=true" {
		t.Errorf("filter %q", filter)
	}
	got = f.run(t, "workflow", "get", "wf-1")
	for _, part := range []string{"disable_node → cleanup_storage", "resume, cancel", "the disk said no",
		"execution_failed"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("the sheet lacks %q:\n%s", part, got.out)
		}
	}
	if got := f.run(t, "workflow", "get", "wf-no"); got.code == 0 || !strings.Contains(got.err, "ingot workflow list") {
		t.Errorf("an unknown one: %+v", got)
	}
}

// TestDecommissionAsks: what cannot be taken back is not begun without a word for it.
func TestDecommissionAsks(t *testing.T) {
	f := fleet()
	f.op = &pb.Operation{OperationId: "op-1", MachineId: "machine-1", Phase: pb.Operation_PENDING}
	if got := f.run(t, "decommission", "machine-1", "--mode", "full-decommission", "--no-wait"); got.code == 0 ||
		len(f.sent) != 0 || !strings.Contains(got.err, "--yes") {
		t.Fatalf("%+v, sent %v", got, f.sent)
	}
	got := f.run(t, "decommission", "machine-1", "--mode", "full-decommission", "--yes", "--enter-maintenance", "--image",
		"img", "--request-id", "r", "--no-wait")
	want := &pb.StartWorkflowRequest{
		MachineId: "machine-1", RequestId: "r", Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_FULL_DECOMMISSION,
		EnterMaintenance: true,
		Params:           map[string]string{"image_ref": "img"},
	}
	if got.code != 0 || len(f.sent) != 1 || !proto.Equal(f.sent[0], want) {
		t.Errorf("%+v, sent %v", got, f.sent)
	}
	got = f.run(t, "decommission", "machine-1", "--mode", "full-decommission", "--dry-run")
	if got.code != 0 || !strings.Contains(got.out, "disable_node → cleanup_storage") ||
		!strings.Contains(got.out, "the data is lost") {
		t.Errorf("a dry run says %+v", got)
	}
	for _, quiet := range [][]string{{"decommission", "machine-1", "--mode", "soft-reset"},
		{"onboard", "machine-1", "--path", "adopt"}} {
		if got := f.run(t, append(quiet, "--no-wait")...); got.code != 0 {
			t.Errorf("%v asked: %+v", quiet, got)
		}
	}
	if got := f.run(t, "decommission", "machine-1", "--mode", "gently", "--yes"); got.code == 0 ||
		!strings.Contains(got.err, "soft-reset") {
		t.Errorf("an unknown mode: %+v", got)
	}
}

func TestWorkflowActs(t *testing.T) {
	f := fleet()
	f.op = &pb.Operation{OperationId: "op-2", MachineId: "machine-1", Phase: pb.Operation_PENDING}
	got := f.run(t, "workflow", "act", "wf-1", "resume", "--comment", "disk swapped", "--request-id", "r", "--no-wait")
	want := &pb.ActOnWorkflowRequest{WorkflowId: "wf-1", RequestId: "r", Action: pb.WorkflowAction_WORKFLOW_ACTION_RESUME,
		Comment: "disk swapped"}
	if got.code != 0 || len(f.sent) != 1 || !proto.Equal(f.sent[0], want) {
		t.Errorf("%+v, sent %v", got, f.sent)
	}
	if got := f.run(t, "workflow", "act", "wf-1", "restart-clean", "--dry-run"); got.code != 0 ||
		!strings.Contains(got.out, "it goes on") {
		t.Errorf("a dry run says %+v", got)
	}
	if got := f.run(t, "workflow", "act", "wf-1", "restart-clean", "--no-wait"); got.code == 0 {
		t.Errorf("it was not asked for: %+v", got)
	}
	if got := f.run(t, "workflow", "act", "wf-1", "pray"); got.code == 0 ||
		!strings.Contains(got.err, "adopt-observed-state") {
		t.Errorf("an unknown action: %+v", got)
	}
}

// TestADryRunNamesItsCommand: with machines and flags, as a shell reads them, so that it can be pasted.
func TestADryRunNamesItsCommand(t *testing.T) {
	for line, want := range map[string]string{
		"reimage machine-1 --image ubuntu-2204 --dry-run": "To begin: ingot reimage machine-1 --image=ubuntu-2204",
		"reimage machine-[1-3] --image ubuntu-2204 --dry-run --max-in-flight 2": "To begin: ingot reimage 'machine-[1-3]' " +
			"--image=ubuntu-2204 --max-in-flight=2",
		"provision machine-1 machine-2 --image ubuntu-2204 --dry-run": "To begin: ingot provision machine-1 machine-2 " +
			"--image=ubuntu-2204",
	} {
		got := fleet().run(t, strings.Fields(line)...)
		var begin string
		for text := range strings.Lines(got.out) {
			if strings.HasPrefix(text, "To begin:") {
				begin = strings.TrimSpace(text)
			}
		}
		// The preview of several leaves out machine-4.
		if several := strings.Contains(line, "machine-2") || strings.Contains(line, "["); begin != want ||
			got.code != map[bool]int{false: 0, true: 5}[several] {
			t.Errorf("%s: exit code %d, %q; want %q", line, got.code, begin, want)
		}
	}
}

// TestADryRunThatIsRefusedExitsLikeTheCall: with the code of the call on the one machine, or of a rollout of none.
func TestADryRunThatIsRefusedExitsLikeTheCall(t *testing.T) {
	for line, want := range map[string]int{
		"reimage machine-1 --image no-such --dry-run":                    3,
		"reimage machine-1 machine-2 --image no-such --dry-run":          4,
		"provision machine-1 --image no-such --dry-run":                  4,
		"rollout preview --type REPAVE --filter a=b --image no-such":     4,
		"reimage machine-1 --image no-such --dry-run --output json":      3,
		"rollout preview --type REPAVE --filter a=b --image ubuntu-2204": 0,
	} {
		got := fleet().run(t, strings.Fields(line)...)
		if got.code != want {
			t.Errorf("%s: exit code %d, want %d: %+v", line, got.code, want, got)
		}
		if strings.Contains(got.out, "To begin:") != (want == 0) {
			t.Errorf("%s: %s", line, got.out)
		}
	}
}
