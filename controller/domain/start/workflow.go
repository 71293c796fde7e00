package start

import (
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Beginning is a workflow that is about to begin on the machine.
type Beginning struct {
	Kind   workflow.Kind
	Mode   workflow.Mode
	Traits workflow.Traits
	Stages []workflow.Stage
}

// workflowRules is the table of the refusals of a workflow, in the order of their precedence. Its first attempt is
// judged after them by the table of a start. A workflow that goes on is judged by the first rule alone.
var workflowRules = []Rule{
	{Name: "no workflow is open", Reasons: []string{"WORKFLOW_ACTIVE"}, asks: anyWorkflowAsks, refuse: noOpenWorkflow},
	{Name: "node may begin it", Reasons: []string{"NODE_TRANSITION_ILLEGAL"}, refuse: nodeMayBegin},
	{Name: "stages are built", Reasons: []string{"STAGE_NOT_WIRED"}, refuse: stagesAreBuilt},
	{Name: "provider agrees", Reasons: []string{"PROVIDER_DRIFT"}, asks: workflowDriftAsks, refuse: workflowDrift},
}

// WorkflowRules returns the table of the refusals of a workflow, in the order of their precedence.
func WorkflowRules() []Rule { return append([]Rule{}, workflowRules...) }

// AdmitWorkflow returns the refusal of the workflow that is about to begin, or the facts to read first, as Admit does.
func AdmitWorkflow(f *Facts) (ask []Fact, err error) { return f.judge(workflowRules) }

func anyWorkflowAsks(f *Facts) []Fact { return []Fact{{OpenWorkflowFact, f.Machine.MachineID}} }

func nodeMayBegin(f *Facts) error {
	if f.Beginning == nil || f.Machine.Deleted {
		return nil
	}
	if x := workflow.Startable(f.Beginning.Kind, f.Beginning.Mode, f.Machine.NodeState); x != nil {
		return refused(x, f.Machine)
	}
	return nil
}

func stagesAreBuilt(f *Facts) error {
	b := f.Beginning
	if b == nil {
		return nil
	}
	name := workflow.NotImplemented(b.Stages)
	if name == "" {
		return nil
	}
	return failure.Unimplemented("STAGE_NOT_WIRED", "stage %s of this machine's %s is not built", name,
		workflow.PlanID(b.Kind, b.Mode, b.Traits)).WithMeta("stage", name)
}

func (f *Facts) beginsDestroying() bool {
	return f.Beginning != nil && workflow.Destructive(f.Beginning.Kind, f.Beginning.Mode) && !f.Machine.Deleted
}

func workflowDriftAsks(f *Facts) []Fact {
	if !f.beginsDestroying() {
		return nil
	}
	return f.providerAsks()
}

func workflowDrift(f *Facts) error {
	if !f.beginsDestroying() {
		return nil
	}
	return noDrift(f)
}
