package public

import (
	"cmp"
	"context"
	"strconv"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// work is what every call that starts work comes down to.
type work struct {
	machineID, requestID string
	kind                 fleet.OperationType
	planID               string
	params               map[string]string
	comment              string
	// path names a parameter's field in the request.
	path func(param string) string
}

// Reserved plans: they change the phase or the node state, which only these operations may do.
var maintenancePlans = map[string]fleet.OperationType{
	fleet.DefaultPlan(fleet.EnterMaintenance): fleet.EnterMaintenance,
	fleet.DefaultPlan(fleet.ExitMaintenance):  fleet.ExitMaintenance,
	fleet.DefaultPlan(fleet.NodeTransition):   fleet.NodeTransition,
}

// begin checks the request, then that the work is built, then starts it.
func (s *Server) begin(ctx context.Context, w work) (*baremetalv1.Operation, error) {
	r, err := w.request()
	if err != nil {
		return nil, err
	}
	if w.kind == fleet.Onboard || w.kind == fleet.Decommission {
		return nil, validate.Fault("type", "%s is the type of a workflow's attempts; call StartWorkflow", w.kind)
	}
	if !fleet.Wired(w.kind) {
		return nil, notWired("OPERATION_TYPE_NOT_WIRED", "operations of type "+string(w.kind))
	}
	r.Actor = actor(ctx)
	return s.engine.Start(ctx, r)
}

// request checks everything that can be checked without looking at the machine.
func (w work) request() (operationstore.StartRequest, error) {
	r := operationstore.StartRequest{
		MachineID: w.machineID, RequestID: w.requestID, Type: w.kind, PlanID: w.planID, Params: w.params, Comment: w.comment,
	}
	err := firstError(
		validate.RequestID(w.requestID),
		validate.Key("machine_id", w.machineID),
		validate.OptionalKey("plan_id", w.planID),
		validate.Comment("comment", w.comment),
		w.checkPlan(),
	)
	if err != nil || !fleet.Wired(w.kind) {
		return r, err
	}
	if r.Inputs, err = validate.Params(w.kind, w.params, w.path); err != nil {
		return r, err
	}
	if w.params[validate.ParamReboot] == "true" {
		if w.planID != "" {
			return r, validate.Fault(w.path(validate.ParamReboot), "not together with plan_id")
		}
		r.PlanID = "netboot-now"
	}
	if w.plan() == fleet.DefaultPlan(fleet.Reconfigure) && r.Inputs.Config == nil {
		err = validate.Fault(w.path(validate.ParamConfig), "required: there is nothing to configure")
	}
	return r, err
}

func (w work) plan() string { return cmp.Or(w.planID, fleet.DefaultPlan(w.kind)) }

// checkPlan keeps phase changes to the operations that are there for them, and those to their own plan: they are let
// through where other work is refused.
func (w work) checkPlan() error {
	if w.kind == fleet.NodeTransition {
		return validate.Fault("type", "a node is moved by TransitionNode, which says where to")
	}
	if w.kind == fleet.RunPlan && w.planID == "" {
		return validate.Fault("plan_id", "required for RUN_PLAN")
	}
	if owner, ok := maintenancePlans[w.plan()]; ok && owner != w.kind {
		return validate.Fault("plan_id", "plan %s belongs to %s", w.plan(), owner)
	}
	if fleet.Housekeeping(w.kind) && w.plan() != fleet.DefaultPlan(w.kind) {
		return validate.Fault("plan_id", "%s runs no other plan than its own", w.kind)
	}
	return nil
}

// plain is the path of a parameter that has a field of its own.
func plain(param string) string { return param }

// set adds a parameter unless it is empty.
func set(params map[string]string, key, value string) map[string]string {
	if value == "" {
		return params
	}
	if params == nil {
		params = map[string]string{}
	}
	params[key] = value
	return params
}

// seconds writes a number of seconds as a parameter; 0 is the default and so absent.
func seconds(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// runType finds the operation type of a run. A plan alone is RUN_PLAN.
func runType(name, planID string) (fleet.OperationType, error) {
	if name == "" && planID != "" {
		return fleet.RunPlan, nil
	}
	if t, ok := runTypes[name]; ok {
		return t, nil
	}
	if t := fleet.OperationType(name); fleet.Known(t) {
		return t, nil
	}
	return "", failure.Invalid("UNKNOWN_RUN_TYPE", "there is no run type %.64q", name).
		WithField("type", "REPAVE, NET_RECONFIG, an operation type, or empty with a plan_id")
}
