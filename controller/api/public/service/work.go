package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Work is what every call that starts work comes down to.
type Work struct {
	MachineID, RequestID string
	Kind                 fleet.OperationType
	PlanID               string
	Params               map[string]string
	Comment              string
	// Seed names what the new system is given: see KeepSeed.
	Seed string
	// ValidateOnly checks the work and starts none.
	ValidateOnly bool
	// Path names a parameter's field in the request.
	Path func(param string) string
}

// MaintenancePlans are reserved plans: they change the phase or the node state, which only these operations may do.
var MaintenancePlans = map[string]fleet.OperationType{
	fleet.DefaultPlan(fleet.EnterMaintenance): fleet.EnterMaintenance,
	fleet.DefaultPlan(fleet.ExitMaintenance):  fleet.ExitMaintenance,
	fleet.DefaultPlan(fleet.NodeTransition):   fleet.NodeTransition,
}

// Begin checks the request, then starts the work, unless it is to be validated only.
func (s *Base) Begin(ctx context.Context, w Work) (*baremetalv1.Operation, error) {
	r, err := w.start(ctx)
	if err != nil {
		return nil, err
	}
	if w.ValidateOnly {
		op, _, err := s.stores.Operations.ValidateStart(ctx, r)
		return op, err
	}
	return s.Engine.Start(ctx, r)
}

// Validate returns the operation that the work would be, with its steps, and starts none. The operation has no id
// unless the same request has started it before.
func (s *Base) Validate(ctx context.Context, w Work) (*baremetalv1.Operation, []plan.Filled, error) {
	r, err := w.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	op, fit, err := s.stores.Operations.ValidateStart(ctx, r)
	return op, fit.Steps, err
}

// start returns the caller's request for the work.
func (w Work) start(ctx context.Context) (operationstore.StartRequest, error) {
	if w.Kind == fleet.Onboard || w.Kind == fleet.Decommission {
		return operationstore.StartRequest{},
			validate.Fault("type", "%s is the type of a workflow's attempts; call StartWorkflow", w.Kind)
	}
	r, err := w.Request()
	r.Actor = Actor(ctx)
	return r, err
}

// KeepSeed checks what a new system is to be given and stores it sealed, unless the call only validates. It returns the
// name for Work.Seed, which tells nothing of the content; "" for a seed that is nil.
func (s *Base) KeepSeed(
	ctx context.Context, path string, seed *baremetalv1.SystemSeed, validateOnly bool,
) (string, error) {
	if seed == nil {
		return "", nil
	}
	if err := validate.SystemSeed(path, seed); err != nil {
		return "", err
	}
	plain, err := proto.MarshalOptions{Deterministic: true}.Marshal(seed)
	if err != nil {
		return "", fmt.Errorf("encode seed: %w", err)
	}
	id, sealed := s.Config.Secrets.SealSeed(plain)
	if validateOnly {
		return id, nil
	}
	return id, s.stores.Credentials.PutSystemSeed(ctx, id, sealed, s.Clock.Now())
}

// Request checks everything that can be checked without looking at the machine.
func (w Work) Request() (operationstore.StartRequest, error) {
	r := operationstore.StartRequest{
		MachineID: w.MachineID, RequestID: w.RequestID, Type: w.Kind, PlanID: w.PlanID, Params: w.Params, Comment: w.Comment,
	}
	err := FirstError(
		validate.RequestID(w.RequestID),
		validate.Key("machine_id", w.MachineID),
		validate.OptionalKey("plan_id", w.PlanID),
		validate.Comment("comment", w.Comment),
		w.checkPlan(),
	)
	if err != nil {
		return r, err
	}
	if r.Inputs, err = validate.Params(w.Kind, w.Params, w.Path); err != nil {
		return r, err
	}
	r.Params = Set(maps.Clone(w.Params), validate.ParamSeed, w.Seed)
	if w.Params[validate.ParamReboot] == "true" {
		if w.PlanID != "" {
			return r, validate.Fault(w.Path(validate.ParamReboot), "not together with plan_id")
		}
		r.PlanID = "netboot-now"
	}
	if w.plan() == fleet.DefaultPlan(fleet.Reconfigure) && r.Inputs.Config == nil {
		err = validate.Fault(w.Path(validate.ParamConfig), "required: there is nothing to configure")
	}
	return r, err
}

func (w Work) plan() string { return cmp.Or(w.PlanID, fleet.DefaultPlan(w.Kind)) }

// checkPlan keeps phase changes to the operations that are there for them, and those to their own plan: they are let
// through where other work is refused.
func (w Work) checkPlan() error {
	if w.Kind == fleet.NodeTransition {
		return validate.Fault("type", "a node is moved by TransitionNode, which says where to")
	}
	if w.Kind == fleet.RunPlan && w.PlanID == "" {
		return validate.Fault("plan_id", "required for RUN_PLAN")
	}
	if owner, ok := MaintenancePlans[w.plan()]; ok && owner != w.Kind {
		return validate.Fault("plan_id", "plan %s belongs to %s", w.plan(), owner)
	}
	if fleet.Housekeeping(w.Kind) && w.plan() != fleet.DefaultPlan(w.Kind) {
		return validate.Fault("plan_id", "%s runs no other plan than its own", w.Kind)
	}
	return nil
}

// Plain is the path of a parameter that has a field of its own.
func Plain(param string) string { return param }

// Set adds a parameter unless it is empty.
func Set(params map[string]string, key, value string) map[string]string {
	if value == "" {
		return params
	}
	if params == nil {
		params = map[string]string{}
	}
	params[key] = value
	return params
}

// Seconds writes a number of seconds as a parameter; 0 is the default and so absent.
func Seconds(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// RunType finds the operation type of a run. A plan alone is RUN_PLAN.
func RunType(name, planID string) (fleet.OperationType, error) {
	if name == "" && planID != "" {
		return fleet.RunPlan, nil
	}
	if t, ok := query.RunTypes[name]; ok {
		return t, nil
	}
	if t := fleet.OperationType(name); fleet.Known(t) {
		return t, nil
	}
	return "", failure.Invalid("UNKNOWN_RUN_TYPE", "there is no run type %.64q", name).
		WithField("type", "REPAVE, NET_RECONFIG, an operation type, or empty with a plan_id")
}
