package node

import (
	"context"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/kind"
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
		EnterMaintenance: r.GetEnterMaintenance(), Params: r.GetParams(), DryRun: r.GetDryRun(),
		ValidateOnly: r.GetValidateOnly(),
	}
	err := service.FirstError(validate.RequestID(r.GetRequestId()), validate.Key("machine_id", r.GetMachineId()))
	if err != nil {
		return w, err
	}
	if r.GetPlanId() != "" {
		return w, validate.Fault("plan_id", "a workflow runs the plan of its kind and mode")
	}
	if w.Kind != workflow.Onboarding && w.Kind != workflow.Decommission {
		return w, validate.Fault("kind", "ONBOARDING or DECOMMISSION")
	}
	if w.Mode, err = validate.WorkflowMode("mode", w.Kind, r.GetMode()); err != nil {
		return w, err
	}
	w.Inputs, err = validate.WorkflowParams("params", w.Kind, r.GetParams())
	return w, err
}

// GetWorkflow implements WorkflowService.
func (s *Server) GetWorkflow(ctx context.Context, r *baremetalv1.GetWorkflowRequest) (*baremetalv1.Workflow, error) {
	if err := validate.Key("workflow_id", r.GetWorkflowId()); err != nil {
		return nil, err
	}
	return s.stores.Workflows.GetWorkflow(ctx, r.GetWorkflowId())
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
	if f.Selections, err = query.Within(ctx); err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Workflow]{
		Name: "workflows", Filter: r.GetFilter(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Workflow, error) {
			f.BeforeID, f.BeforeTime, f.Limit = after.ID, after.Time, limit
			return s.stores.Workflows.ListWorkflows(ctx, f)
		},
		Subject: service.Subjects(s.Machine(f.MachineID)),
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
		DryRun:     r.GetDryRun(), ValidateOnly: r.GetValidateOnly(),
		Inputs: func(params map[string]string) (kind.Inputs, error) {
			return validate.WorkflowParams("params", workflow.Onboarding, params)
		},
	})
}
