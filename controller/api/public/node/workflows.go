package node

import (
	"context"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/validate"
)

const (
	actionPrefix = "WORKFLOW_ACTION_"
	unspecified  = "_UNSPECIFIED"
)

var workflowKeys = validate.Keys{
	"machine_id":    validate.Any,
	"kind":          validate.Among(query.EnumNames(baremetalv1.Workflow_Kind_value, "")),
	"mode":          validate.Among(query.EnumNames(baremetalv1.Workflow_Mode_value, "")),
	"state":         validate.Among(query.EnumNames(baremetalv1.Workflow_State_value, "")),
	"failure_class": validate.Any,
	"open":          validate.Among(map[string]string{"true": "true", "false": "false"}),
}

// StartWorkflow implements WorkflowService.
func (s *Server) StartWorkflow(
	ctx context.Context, r *baremetalv1.StartWorkflowRequest,
) (*baremetalv1.Operation, error) {
	w, err := workflowStart(r)
	if err != nil {
		return nil, err
	}
	w.Actor = service.Actor(ctx)
	return s.Engine.StartWorkflow(ctx, w)
}

func workflowStart(r *baremetalv1.StartWorkflowRequest) (workflowstore.WorkflowStart, error) {
	w := workflowstore.WorkflowStart{
		MachineID: r.GetMachineId(), RequestID: r.GetRequestId(), Kind: workflow.Kind(r.GetKind().String()),
		Mode:             modeOf(r.GetMode()),
		EnterMaintenance: r.GetEnterMaintenance(), Params: r.GetParams(), DryRun: r.GetDryRun(),
	}
	err := service.FirstError(validate.RequestID(r.GetRequestId()), validate.Key("machine_id", r.GetMachineId()),
		checkWorkflow(r, w))
	if err != nil {
		return w, err
	}
	w.Inputs, err = workflowInputs(w.Kind)(r.GetParams())
	return w, err
}

func checkWorkflow(r *baremetalv1.StartWorkflowRequest, w workflowstore.WorkflowStart) error {
	switch {
	case r.GetPlanId() != "":
		return validate.Fault("plan_id", "a workflow runs the plan of its kind and mode")
	case w.Kind != workflow.Onboarding && w.Kind != workflow.Decommission:
		return validate.Fault("kind", "ONBOARDING or DECOMMISSION")
	case !workflow.Fits(w.Kind, w.Mode) && w.Kind == workflow.Onboarding:
		return validate.Fault("mode", "an onboarding has none")
	case !workflow.Fits(w.Kind, w.Mode):
		return validate.Fault("mode", "SOFT_RESET, REIMAGE, STORAGE_CLEANUP or FULL_DECOMMISSION")
	}
	return nil
}

func modeOf(m baremetalv1.Workflow_Mode) workflow.Mode {
	if m == baremetalv1.Workflow_MODE_UNSPECIFIED {
		return workflow.NoMode
	}
	return workflow.Mode(m.String())
}

// workflowInputs reads what a workflow's parameters say to its steps; every attempt reads them again.
func workflowInputs(k workflow.Kind) func(map[string]string) (plan.Inputs, error) {
	return func(params map[string]string) (plan.Inputs, error) {
		of := map[string]string{}
		for key, value := range params {
			switch {
			case key == validate.ParamImage || key == validate.ParamTimeout:
				of[key] = value
			case key == validate.ParamPath && k == workflow.Onboarding:
				if err := validate.OneOf("params[path]", value, workflow.PathInstall, workflow.PathAdopt); err != nil {
					return plan.Inputs{}, err
				}
			default:
				return plan.Inputs{},
					validate.Fault("params", "%.64q is no parameter of it; image_ref, timeout_seconds, and path of an onboarding are",
						key)
			}
		}
		return validate.Params(fleet.Onboard, of, func(p string) string { return "params[" + p + "]" })
	}
}

// GetWorkflow implements WorkflowService.
func (s *Server) GetWorkflow(ctx context.Context, r *baremetalv1.GetWorkflowRequest) (*baremetalv1.Workflow, error) {
	if err := validate.Key("workflow_id", r.GetWorkflowId()); err != nil {
		return nil, err
	}
	return s.Store.GetWorkflow(ctx, r.GetWorkflowId())
}

// ListWorkflows implements WorkflowService.
func (s *Server) ListWorkflows(
	ctx context.Context, r *baremetalv1.ListWorkflowsRequest,
) (*baremetalv1.ListWorkflowsResponse, error) {
	terms, err := validate.Filter(r.GetFilter(), workflowKeys)
	if err != nil {
		return nil, err
	}
	f := workflowFilter(terms)
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Workflow]{
		Name: "workflows", Filter: r.GetFilter(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Workflow, error) {
			f.BeforeID, f.BeforeTime, f.Limit = after.ID, after.Time, limit
			return s.Store.ListWorkflows(ctx, f)
		},
		Place: service.ByTime((*baremetalv1.Workflow).GetWorkflowId,
			func(w *baremetalv1.Workflow) time.Time { return w.GetCreatedAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListWorkflowsResponse{Workflows: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

func workflowFilter(terms []validate.Term) workflowstore.WorkflowFilter {
	var f workflowstore.WorkflowFilter
	for _, t := range terms {
		switch t.Key {
		case "machine_id":
			f.MachineID = t.Value
		case "kind":
			f.Kind = t.Value
		case "mode":
			f.Mode = t.Value
		case "state":
			f.State = t.Value
		case "failure_class":
			f.FailureClass = t.Value
		case "open":
			f.Open = t.Value == "true"
		}
	}
	return f
}

// ActOnWorkflow implements WorkflowService.
func (s *Server) ActOnWorkflow(
	ctx context.Context, r *baremetalv1.ActOnWorkflowRequest,
) (*baremetalv1.Operation, error) {
	err := service.FirstError(validate.RequestID(r.GetRequestId()), validate.Key("workflow_id", r.GetWorkflowId()),
		validate.Comment("comment", r.GetComment()))
	if err != nil {
		return nil, err
	}
	name := r.GetAction().String()
	if strings.HasSuffix(name, unspecified) || !strings.HasPrefix(name, actionPrefix) {
		return nil, validate.Fault("action", "required: one of the workflow's legal_actions")
	}
	return s.Engine.ActOnWorkflow(ctx, workflowstore.WorkflowAct{
		WorkflowID: r.GetWorkflowId(),
		RequestID:  r.GetRequestId(),
		Action:     workflow.Action(strings.TrimPrefix(name, actionPrefix)),
		Comment:    r.GetComment(),
		Actor:      service.Actor(ctx),
		DryRun:     r.GetDryRun(),
		Inputs:     workflowInputs(workflow.Onboarding),
	})
}
