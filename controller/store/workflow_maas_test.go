package store_test

import (
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestMAASHasStagesOfItsOwn: a machine that MAAS drives is onboarded by MAAS's stages, and by no other way of installing.
func TestMAASHasStagesOfItsOwn(t *testing.T) {
	s := storetest.New(t)
	if _, err := s.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Provider: "maas"}}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	maintenance(t, s, "m-1")
	op, _, err := s.StartWorkflow(t.Context(), store.WorkflowStart{MachineID: "m-1", RequestID: "x", Kind: workflow.Onboarding, Actor: "tester"}, now())
	if err != nil || op.GetPlanId() != "onboard-maas" {
		t.Fatalf("%v %v", op, err)
	}
	if n := count(t, s, "SELECT count(*) FROM operation_steps WHERE kind = 'provider_action'"); n != 14 {
		t.Errorf("%d steps are actions of the provider", n)
	}
	if n := count(t, s, "SELECT count(*) FROM operation_steps WHERE kind IN ('netboot', 'repave', 'reboot')"); n != 0 {
		t.Errorf("%d steps are for machines without a provider", n)
	}
}

// answersOfMAAS is the evidence that a site's agent gives for an action that has succeeded.
func answersOfMAAS(action string) map[string]string {
	out := map[string]string{evidence.ProviderSaid: "as asked"}
	for _, s := range workflow.Catalogue() {
		does := slices.ContainsFunc(s.Steps, func(step workflow.StepOf) bool { return step.Kind == workflow.ProviderKind && step.Mode == action })
		if does && s.Gives != "" {
			out[s.Gives] = "true"
		}
	}
	return out
}

// newMAASRig is a machine that MAAS installs, with the agent of its site.
func newMAASRig(t *testing.T) *lifeRig {
	t.Helper()
	r := &lifeRig{T: t, s: storetest.New(t), boot: "boot-site"}
	m := &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Provider: "maas", Site: "lab", MacAddresses: []string{lifeMAC}}}
	if _, err := r.s.Register(t.Context(), m, "tester", now()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.SetMAASRegion(t.Context(), store.MAASRegion{Ref: "default", Endpoint: "http://127.0.0.1:1/MAAS", Sealed: []byte("key")}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	lease(t, r.s)
	r.agent = enrol(t, r.s, store.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})
	h := r.agent.hello("st-1", r.boot)
	h.Capabilities = []string{"provider:maas"}
	open(t, r.s, h)
	r.epoch++
	maintenance(t, r.s, "m-1")
	return r
}

// A clean start undoes at MAAS what the stages before it have done there, before anything is begun anew; a further attempt
// undoes what is left.
func TestACleanStartUndoesWhatMAASDid(t *testing.T) {
	r := newMAASRig(t)
	r.fail = map[string]operation.Resulted{"deploy": {Outcome: operation.OutcomeFailed, Reason: "MAAS_REFUSED", Message: "no room in the pool"}}
	r.start(workflow.Onboarding, workflow.NoMode)
	w := r.run()
	if !failedWorkflow(w) || w.GetCurrentStage() != workflow.DeployViaMAAS {
		t.Fatalf("after a deployment that was refused the workflow is %v", w)
	}
	r.mustAct(workflow.RestartClean, "clean")
	run, err := r.s.GetRun(t.Context(), r.workflow().GetOperationId())
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
	if w := r.run(); w.GetCurrentStage() != workflow.WaitForEnrollment {
		t.Errorf("the clean start comes to %v", w)
	}
}
