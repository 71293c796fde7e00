package storetest

import (
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Begin starts a workflow on the rig's machine and gives its operation.
func (r *MetalRig) Begin(k workflow.Kind, m workflow.Mode) string {
	r.T.Helper()
	op, _, err := r.Store.Workflows.StartWorkflow(r.T.Context(), workflowstore.WorkflowStart{
		MachineID: "m-1", RequestID: "life", Kind: k, Mode: m, Actor: "tester", Inputs: Inputs("tiny"),
	}, Now())
	if err != nil {
		r.T.Fatal(err)
	}
	return op.GetOperationId()
}

func (r *MetalRig) Workflow() *baremetalv1.Workflow {
	r.T.Helper()
	all, err := r.Store.Workflows.ListWorkflows(r.T.Context(), workflowstore.WorkflowFilter{MachineID: "m-1", Limit: 1})
	if err != nil || len(all) != 1 {
		r.T.Fatalf("%d workflows (%v)", len(all), err)
	}
	return all[0]
}

// IntoInstaller follows the machine into the installer through its BMC.
func (r *MetalRig) IntoInstaller(op string) Enrolled {
	r.T.Helper()
	r.Decide(op, operation.Evaluate{})
	return r.InstallerOf(op)
}

// InstallerOf is intoInstaller for an operation that waits for its site.
func (r *MetalRig) InstallerOf(op string) Enrolled {
	r.T.Helper()
	token := r.Applied().GetAssignments()[0].GetToken()
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})
	v, err := r.Vouch(token, "key", Now())
	if err != nil {
		r.T.Fatal(err)
	}
	return r.Installer(v, "boot-ram")
}

func (r *MetalRig) ServesTheImage(op string) {
	r.T.Helper()
	r.Decide(op, operation.Evaluate{})
	a := r.Applied().GetAssignments()[0]
	if a.GetOperationId() != op || !slices.Equal(a.GetPrefetchSha256(), []string{"cc"}) {
		r.T.Errorf("for operation %s the site serves %v", op, a)
	}
}
