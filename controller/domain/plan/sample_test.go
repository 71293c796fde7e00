package plan_test

import (
	"slices"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/plan"
)

func builtIn(t *testing.T, id string) *baremetalv1.Plan {
	t.Helper()
	all := plan.BuiltIn()
	i := slices.IndexFunc(all, func(p *baremetalv1.Plan) bool { return p.GetPlanId() == id })
	if i < 0 {
		t.Fatalf("there is no plan %s", id)
	}
	return all[i]
}

// TestTheSamplePlan: the plan of the API's documentation, step by step, as it is built in and as a client may store it.
func TestTheSamplePlan(t *testing.T) {
	want := []struct {
		name, kind string
		seconds    int
		retries    int
	}{
		{"set-netboot", "netboot", 60, 2}, {"repave-os", "repave", 1800, 1},
		{"reboot", "reboot", int(plan.FirstBoot.Seconds()), 2},
		{"join-cluster", "join", 600, 1}, {"verify", "verify", 300, 0},
	}
	steps := builtIn(t, "repave-join").GetSteps()
	if len(steps) != len(want) {
		t.Fatalf("%d steps: %v", len(steps), steps)
	}
	sample := builtIn(t, "repave-join")
	sample.GetSteps()[3].GetJoin().ClusterRef, sample.GetSteps()[4].GetVerify().ClusterRef = "cluster-a", "cluster-a"
	filled, err := plan.Fill(sample, kind.Inputs{ImageRef: "ubuntu-22.04"}, plan.BuiltInDefaults())
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		f := filled[i]
		if f.Step.GetName() != w.name || string(f.Kind) != w.kind || f.Timeout != time.Duration(w.seconds)*time.Second ||
			f.Retries != w.retries {
			t.Errorf("step %d is %s %s, %v, %d retries; want %+v", i, f.Step.GetName(), f.Kind, f.Timeout, f.Retries, w)
		}
	}
	own := &baremetalv1.Plan{PlanId: "plan-repave-ubuntu-2204-v1", Steps: []*baremetalv1.Step{
		{Name: "set-netboot", TimeoutSeconds: 60, MaxRetries: 2,
			Kind: &baremetalv1.Step_Netboot{Netboot: &baremetalv1.SetNetboot{Mode: "PXE"}}},
		{Name: "repave-os", TimeoutSeconds: 1800, MaxRetries: 1,
			Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: "ubuntu-22.04"}}},
		{Name: "reboot", TimeoutSeconds: 300, MaxRetries: 2,
			Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{Mode: "bmc"}}},
		{Name: "join-cluster", TimeoutSeconds: 600, MaxRetries: 1,
			Kind: &baremetalv1.Step_Join{Join: &baremetalv1.KubeadmJoin{ClusterRef: "cluster-a"}}},
		{Name: "verify", TimeoutSeconds: 300,
			Kind: &baremetalv1.Step_Verify{Verify: &baremetalv1.VerifyInCluster{ClusterRef: "cluster-a"}}},
	}}
	if err := plan.Validate(own); err != nil {
		t.Errorf("a client may not store it: %v", err)
	}
}

// TestMaintenancePlansDoNothingElse: entering and leaving maintenance is one step that moves the phase; nothing is
// drained.
func TestMaintenancePlansDoNothingElse(t *testing.T) {
	for id, phase := range map[string]string{"enter-maintenance": "MAINTENANCE", "exit-maintenance": "READY"} {
		steps := builtIn(t, id).GetSteps()
		if len(steps) != 1 || steps[0].GetSetPhase().GetPhase() != phase {
			t.Errorf("%s does %v", id, steps)
		}
	}
}
