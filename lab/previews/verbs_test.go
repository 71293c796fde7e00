package previews_test

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/failure"
)

// verb is one kind of call that has a preview.
type verb struct {
	name string
	// entersMaintenance: the call is on a machine as it is.
	entersMaintenance bool
	// writes is the image that the work writes for certain, "" where it may write none.
	writes string
	// preview returns the reason why the call would be refused, "" where it would be taken.
	preview func(machine string) string
	// validate is preview by the call itself with validate_only, which judges the machine as in maintenance.
	validate func(machine string) string
	// call makes the call. It returns the operation that it has begun, "" where it was refused or began none.
	call func(machine string) (operation, reason string)
}

// reasonOf returns the reason of an error, "" for none.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	f := failure.From(err)
	if f.Reason == "" {
		return f.Kind.String()
	}
	return f.Reason
}

// verb draws a kind of call, with its parameters.
func (w *world) verb() verb {
	switch w.rand.IntN(5) {
	case 0, 1:
		return w.runVerb()
	case 2:
		return w.lifeVerb()
	case 3:
		return w.moveVerb()
	default:
		return w.rolloutVerb()
	}
}

// image draws the name of an image: one of the catalogue, a file of an installer, a typing error, or none.
func (w *world) image(params map[string]string) {
	if name := w.oneOf("", "tiny", "tiny", "tiny", "arm", "kernel-amd64", "no-such"); name != "" {
		params["image_ref"] = name
	}
}

// previewed asks a preview about one machine.
func (w *world) previewed(spec *pb.RolloutSpec) string {
	p, err := w.Rollouts.PreviewRollout(w.T.Context(), &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return reasonOf(err)
	}
	if len(p.GetMachines()) != 1 {
		w.T.Fatalf("a preview of one machine has %v", p.GetMachines())
	}
	return p.GetMachines()[0].GetReason()
}

// runVerb is one operation: the preview is that of a rollout over the machine alone, as `--dry-run` asks it.
func (w *world) runVerb() verb {
	params, plan := map[string]string{}, ""
	kind := w.oneOf("REPAVE", "REPAVE", "REPAVE", "REBOOT", "NETBOOT", "ENTER_MAINTENANCE", "EXIT_MAINTENANCE",
		"TEST_HARDWARE", "JOIN_CLUSTER", "UPGRADE", "RMA", "")
	switch kind {
	case "REPAVE":
		w.image(params)
		if w.chance(25) {
			params["path"] = w.oneOf("auto", "kexec", "bootnext", "bmc", "media", "teleport")
		}
	case "REBOOT":
		params["mode"] = w.oneOf("graceful", "force", "bmc")
	case "":
		plan = w.oneOf("erase", "power-on", "power-off", "netboot-now", "join", "drain", "leave", "uncordon", "no-such",
			"repave-join", "repave-maas")
	}
	start := func(m, request string, validate bool) (*pb.Run, error) {
		return w.Runs.StartRun(w.T.Context(), &pb.StartRunRequest{MachineId: m, RequestId: request, Type: kind, PlanId: plan,
			Params: params, ValidateOnly: validate})
	}
	return verb{name: strings.TrimSpace(kind + " " + plan + " " + fmt.Sprint(params)), writes: params["image_ref"],
		entersMaintenance: kind == "ENTER_MAINTENANCE",
		validate: func(m string) string {
			run, err := start(m, "call", true)
			if run.GetRunId() != "" {
				w.T.Errorf("%s on %s: validation started %s", kind, m, run.GetRunId())
			}
			return reasonOf(err)
		},
		preview: func(m string) string {
			return w.previewed(&pb.RolloutSpec{Filter: "machine_id=" + m, Type: kind, PlanId: plan, Params: params})
		},
		call: func(m string) (string, string) {
			run, err := start(m, "call", false)
			return run.GetRunId(), reasonOf(err)
		}}
}

// life is an onboarding or a decommission.
type life struct {
	kind   pb.Workflow_Kind
	mode   pb.Workflow_Mode
	enter  bool
	params map[string]string
}

func (l life) start(machine, request string, dry bool) *pb.StartWorkflowRequest {
	return &pb.StartWorkflowRequest{MachineId: machine, RequestId: request, Kind: l.kind, Mode: l.mode,
		EnterMaintenance: l.enter, Params: l.params, DryRun: dry}
}

func (w *world) workflowVerb() life {
	l := life{kind: pb.Workflow_ONBOARDING, enter: w.chance(50), params: map[string]string{}}
	w.image(l.params)
	if w.chance(60) {
		l.kind = pb.Workflow_DECOMMISSION
		l.mode = pb.Workflow_Mode(pb.Workflow_Mode_value[w.oneOf("SOFT_RESET", "REIMAGE", "STORAGE_CLEANUP",
			"FULL_DECOMMISSION")])
	} else if w.chance(50) {
		l.params["path"] = w.oneOf("install", "adopt", "sideways")
	}
	return l
}

// lifeVerb starts a workflow, or acts on the one that the machine has.
func (w *world) lifeVerb() verb {
	l := w.workflowVerb()
	action := pb.WorkflowAction(w.rand.IntN(len(pb.WorkflowAction_name)-1) + 1)
	act := func(m, request string, dry, validate bool) (*pb.Operation, bool, error) {
		all, err := w.Workflows.ListWorkflows(w.T.Context(), &pb.ListWorkflowsRequest{Filter: "machine_id=" + m})
		if err != nil || len(all.GetWorkflows()) == 0 {
			return nil, false, err
		}
		op, err := w.Workflows.ActOnWorkflow(w.T.Context(), &pb.ActOnWorkflowRequest{
			WorkflowId: all.GetWorkflows()[0].GetWorkflowId(), RequestId: request, Action: action, DryRun: dry,
			ValidateOnly: validate})
		return op, true, err
	}
	ask := func(m, request string, dry, validate bool) (*pb.Operation, error) {
		if op, has, err := act(m, request, dry, validate); has || err != nil {
			return op, err
		}
		r := l.start(m, request, dry)
		r.ValidateOnly = validate
		return w.Workflows.StartWorkflow(w.T.Context(), r)
	}
	return verb{name: fmt.Sprintf("workflow %s %s enter=%v %v, or %s", l.kind, l.mode, l.enter, l.params, action),
		preview: func(m string) string {
			_, err := ask(m, "dry", true, false)
			return reasonOf(err)
		},
		validate: func(m string) string {
			_, err := ask(m, "call", false, true)
			return reasonOf(err)
		},
		call: func(m string) (string, string) {
			op, err := ask(m, "call", false, false)
			return op.GetOperationId(), reasonOf(err)
		}}
}

// moveVerb moves the node.
func (w *world) moveVerb() verb {
	states := []pb.NodeState{node.Reprovision, node.Deprovisioning, node.Migrating, node.Draining, node.Enrolling,
		node.Installing, node.Quarantined, node.Retired, node.Pending, node.Active, node.Offline}
	r := &pb.TransitionNodeRequest{State: states[w.rand.IntN(len(states))], Force: w.chance(50), Comment: "drawn"}
	if r.GetState() == node.Reprovision && w.chance(70) {
		r.ImageRef = w.oneOf("tiny", "kernel-amd64", "no-such")
	}
	ask := func(m, request string, dry, validate bool) (*pb.Operation, error) {
		r.NodeId, r.RequestId, r.DryRun, r.ValidateOnly = m, request, dry, validate
		return w.Nodes.TransitionNode(w.T.Context(), r)
	}
	return verb{name: fmt.Sprintf("move to %s force=%v %s", r.GetState(), r.GetForce(), r.GetImageRef()),
		preview: func(m string) string {
			_, err := ask(m, "dry", true, false)
			return reasonOf(err)
		},
		validate: func(m string) string {
			_, err := ask(m, "call", false, true)
			return reasonOf(err)
		},
		call: func(m string) (string, string) {
			op, err := ask(m, "call", false, false)
			return op.GetOperationId(), reasonOf(err)
		}}
}

// rolloutVerb is a rollout over one machine, of work that is several operations, or a workflow.
func (w *world) rolloutVerb() verb {
	spec := &pb.RolloutSpec{Params: map[string]string{}, Action: pb.RolloutSpec_PROVISION}
	w.image(spec.Params)
	switch w.rand.IntN(4) {
	case 0:
		l := w.workflowVerb()
		spec.Action, spec.Params, spec.Mode, spec.EnterMaintenance = pb.RolloutSpec_ONBOARD, l.params, l.mode, l.enter
		if l.kind == pb.Workflow_DECOMMISSION {
			spec.Action = pb.RolloutSpec_DECOMMISSION
		}
	case 1:
		spec.Test = &pb.TestHardware{DurationSeconds: 10}
	}
	v := verb{name: fmt.Sprintf("rollout %s %s enter=%v %v test=%v", spec.GetAction(), spec.GetMode(),
		spec.GetEnterMaintenance(), spec.GetParams(), spec.GetTest() != nil),
		preview: func(m string) string {
			spec.Filter = "machine_id=" + m
			return w.previewed(spec)
		},
		validate: func(m string) string {
			spec.Filter = "machine_id=" + m
			ro, err := w.Rollouts.CreateRollout(w.T.Context(), &pb.CreateRolloutRequest{RequestId: "call-" + m, Spec: spec,
				ValidateOnly: true})
			if ro.GetRolloutId() != "" {
				w.T.Errorf("%s on %s: validation began %s", spec.GetAction(), m, ro.GetRolloutId())
			}
			return reasonOf(err)
		},
		call: func(m string) (string, string) {
			p, err := w.Rollouts.PreviewRollout(w.T.Context(), &pb.PreviewRolloutRequest{Spec: spec})
			if err != nil {
				return "", reasonOf(err)
			}
			ro, err := w.Rollouts.CreateRollout(w.T.Context(), &pb.CreateRolloutRequest{RequestId: "call-" + m, Spec: spec,
				Digest: p.GetDigest()})
			if err != nil {
				if reasonOf(err) == "ROLLOUT_EMPTY" {
					return "", p.GetMachines()[0].GetReason()
				}
				return "", reasonOf(err)
			}
			return w.turns(ro.GetRolloutId(), m)
		}}
	if spec.GetAction() == pb.RolloutSpec_PROVISION {
		v.writes = spec.GetParams()["image_ref"]
	}
	return v
}

// turns lets the engine work on a rollout until it ends or waits. It returns its last operation on the machine, or why
// the machine was refused.
func (w *world) turns(rollout, m string) (operation, reason string) {
	for i := range 8 {
		step, err := w.Store.Rollouts.AdvanceRollout(w.T.Context(), rollout, time.Now().Add(time.Duration(i)*time.Minute))
		if err != nil {
			w.T.Fatal(err)
		}
		if step == nil {
			break
		}
		for range step.Starting {
			op, err := w.Store.Rollouts.StartRolloutMachine(w.T.Context(), rollout, m, time.Now())
			if err != nil {
				w.T.Fatal(err)
			}
			if op == nil {
				break
			}
			operation = op.GetOperationId()
			w.drive(operation, 0)
		}
	}
	all, err := w.Rollouts.ListRolloutMachines(w.T.Context(), &pb.ListRolloutMachinesRequest{RolloutId: rollout})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, r := range all.GetMachines() {
		if r.GetOperationId() == "" || r.GetReason() != "" && operation == "" {
			return operation, r.GetReason()
		}
	}
	return operation, ""
}
