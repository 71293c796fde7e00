package frontpage

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const noWorkflows = "WORKFLOWS_NOT_WIRED"

// StartWorkflow implements WorkflowService. It is not built.
func (s *Server) StartWorkflow(context.Context, *baremetalv1.StartWorkflowRequest) (*baremetalv1.Operation, error) {
	return nil, notWired(noWorkflows, "start a workflow")
}

// GetWorkflow implements WorkflowService. It is not built.
func (s *Server) GetWorkflow(context.Context, *baremetalv1.GetWorkflowRequest) (*baremetalv1.Workflow, error) {
	return nil, notWired(noWorkflows, "read a workflow")
}

// ListWorkflows implements WorkflowService. It is not built.
func (s *Server) ListWorkflows(context.Context, *baremetalv1.ListWorkflowsRequest) (*baremetalv1.ListWorkflowsResponse, error) {
	return nil, notWired(noWorkflows, "list workflows")
}

// ActOnWorkflow implements WorkflowService. It is not built.
func (s *Server) ActOnWorkflow(context.Context, *baremetalv1.ActOnWorkflowRequest) (*baremetalv1.Operation, error) {
	return nil, notWired(noWorkflows, "act on a workflow")
}
