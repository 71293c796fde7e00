package workflow_test

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// TestMAASHasStagesOfItsOwn: a machine that MAAS drives is onboarded by MAAS's stages, and by no other way of
// installing.
func TestMAASHasStagesOfItsOwn(t *testing.T) {
	s := newMAASRig(t).Store
	op, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1", RequestID: "x",
		Kind: workflow.Onboarding, Actor: "tester"}, storetest.Now())
	if err != nil || op.GetPlanId() != "onboard-maas" {
		t.Fatalf("%v %v", op, err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM operation_steps WHERE kind = 'provider_action'"); n != 14 {
		t.Errorf("%d steps are actions of the provider", n)
	}
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM operation_steps WHERE kind IN ('netboot', 'repave', 'reboot')"); n != 0 {
		t.Errorf("%d steps are for machines without a provider", n)
	}
}

// newMAASRig is a machine that MAAS installs, with the agent of its site.
func newMAASRig(t *testing.T) *storetest.LifeRig {
	t.Helper()
	r := &storetest.LifeRig{T: t, Store: storetest.New(t), Boot: "boot-site"}
	m := &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Provider: "maas", Site: "lab",
		MacAddresses: []string{storetest.LifeMAC}}}
	if _, err := r.Store.Machines.Register(t.Context(), m, "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Store.Credentials.SetMAASRegion(t.Context(), credentialstore.MAASRegion{Ref: "default",
		Endpoint: "http://127.0.0.1:1/MAAS", Sealed: []byte("key")}, "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.Lease(t, r.Store)
	r.Agent = storetest.Enrol(t, r.Store, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})
	h := r.Agent.Hello("st-1", r.Boot)
	h.Capabilities = []string{"provider:maas"}
	storetest.Open(t, r.Store, h)
	r.Epoch++
	storetest.Maintenance(t, r.Store, "m-1")
	return r
}

// A clean start undoes at MAAS what the stages before it have done there, before anything is begun anew; a further
// attempt undoes what is left.
func TestACleanStartUndoesWhatMAASDid(t *testing.T) {
	r := newMAASRig(t)
	r.FailWith = map[string]operation.Resulted{"deploy": {Outcome: operation.OutcomeFailed, Reason: "MAAS_REFUSED",
		Message: "no room in the pool"}}
	r.Start(workflow.Onboarding, workflow.NoMode)
	w := r.Run()
	if !failedWorkflow(w) || w.GetCurrentStage() != workflow.DeployViaMAAS {
		t.Fatalf("after a deployment that was refused the workflow is %v", w)
	}
	r.MustAct(workflow.RestartClean, "clean")
	run, err := r.Store.OperationQueries.GetRun(t.Context(), r.Workflow().GetOperationId())
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, step := range run.GetSteps() {
		steps = append(steps, step.GetName())
	}
	if got := strings.Join(steps[:4], " "); got != "approve-node undo-abort undo-release load-site-config" {
		t.Errorf("the clean start does %s", got)
	}
	if w := r.Run(); w.GetCurrentStage() != workflow.WaitForEnrollment {
		t.Errorf("the clean start comes to %v", w)
	}
}
