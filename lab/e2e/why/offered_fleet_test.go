package why

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// ownRig is a controller without a site and without images, for what concerns a whole fleet.
func ownRig(t *testing.T) *whyRig {
	t.Helper()
	return &whyRig{Cluster: harness.New(t, harness.Options{})}
}

func situationsOfFleets() []situation {
	freeze := func(t *testing.T, r *whyRig) {
		t.Helper()
		harness.Must(t, baremetalv1.NewBudgetServiceClient(r.Conn()).FreezeFleet,
			&baremetalv1.FreezeFleetRequest{Comment: "rack 42 is losing disks"})
	}
	rolled := func(t *testing.T, r *whyRig, change func(*baremetalv1.RolloutSpec)) subject {
		t.Helper()
		group := strings.ReplaceAll(macOf(t.Name()), ":", "")
		for range 2 {
			m := r.at(t, harness.MachineOptions{Script: "reboot:fail-before"})
			r.Register(&baremetalv1.Machine{MachineId: m.ID, Labels: map[string]string{"rollout": group},
				Spec: &baremetalv1.MachineSpec{}})
		}
		plan := "roll-" + group
		harness.Must(t, baremetalv1.NewPlanServiceClient(r.Conn()).CreatePlan,
			&baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
				PlanId: plan,
				Steps: []*baremetalv1.Step{{Name: "reboot", MaxRetries: -1, TimeoutSeconds: rig.PatientTime,
					Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}},
			}})
		spec := &baremetalv1.RolloutSpec{Filter: "labels.rollout=" + group, PlanId: plan, Canary: 1, MaxInFlight: 1}
		change(spec)
		rollouts := baremetalv1.NewRolloutServiceClient(r.Conn())
		p := harness.Must(t, rollouts.PreviewRollout, &baremetalv1.PreviewRolloutRequest{Spec: spec})
		ro := harness.Must(t, rollouts.CreateRollout, &baremetalv1.CreateRolloutRequest{RequestId: group, Spec: spec,
			Digest: p.GetDigest()})
		waits := ""
		testkit.Eventually(t, rig.Soon, func() bool {
			for _, m := range harness.Must(t, rollouts.ListRolloutMachines,
				&baremetalv1.ListRolloutMachinesRequest{RolloutId: ro.GetRolloutId()}).GetMachines() {
				if m.GetWave() == 2 {
					waits = m.GetMachineId()
				}
			}
			state := harness.Must(t, rollouts.GetRollout,
				&baremetalv1.GetRolloutRequest{RolloutId: ro.GetRolloutId()}).GetState()
			return waits != "" && state != baremetalv1.Rollout_RUNNING
		}, "the rollout does not stand still")
		return subject{r: r, machine: waits, rollout: ro.GetRolloutId()}
	}
	return []situation{
		{name: "frozen by an admin", rule: "frozen-fleet", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			s := simulated(t, r, harness.MachineOptions{})
			freeze(t, r)
			return s
		}},
		{name: "frozen by a restore", rule: "frozen-fleet", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			s := simulated(t, r, harness.MachineOptions{})
			r.Restored(t)
			return s
		}},
		{name: "frozen while a reboot waits", rule: "frozen", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime)
			freeze(t, r)
			return s
		}},
		{name: "frozen, after a workflow failed", rule: "workflow", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			m := r.NewMachine(t, harness.MachineOptions{Script: "erase:fail-before"})
			m.WaitConnected()
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION, timeout("2"))
			r.failedLife(t, m.ID)
			freeze(t, r)
			return subject{r: r, machine: m.ID, of: m}
		}},
		{name: "frozen, after a reimage failed", rule: "install-failed", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			s.fails(t, s.reimage(t, rig.PatientTime))
			freeze(t, r)
			return s
		}},
		{name: "a budget is used up", rule: "budget", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			harness.Must(t, baremetalv1.NewBudgetServiceClient(r.Conn()).SetBudget, &baremetalv1.SetBudgetRequest{
				Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1},
			})
			first := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			first.fails(t, first.reimage(t, rig.PatientTime))
			s := simulated(t, r, harness.MachineOptions{})
			s.reimage(t, rig.PatientTime)
			return s
		}},
		{name: "a rollout waits for approval", rule: "rollout", arrange: func(t *testing.T, r *whyRig) subject {
			return rolled(t, r, func(s *baremetalv1.RolloutSpec) { s.RequireApproval = true })
		}},
		{name: "a rollout has paused", rule: "rollout", arrange: func(t *testing.T, r *whyRig) subject {
			return rolled(t, r, func(s *baremetalv1.RolloutSpec) { s.WaveGate = &baremetalv1.RolloutGate{Failures: 1} })
		}},
	}
}

func situationsOutside() []situation {
	cycled := func(password string, f bmc.Faults) func(*testing.T, *whyRig) subject {
		return func(t *testing.T, r *whyRig) subject {
			id, _ := r.withBMC(t, password, f)
			s := subject{r: r, machine: id}
			return s.fails(t, r.runOnce(t, id, powerCycle()).GetOperationId())
		}
	}
	inRegion := func(t *testing.T, r *whyRig) *inMAAS {
		x := r.maas(t, &maastest.Machine{Status: ms.New})
		x.inService()
		return x
	}
	return []situation{
		{name: "BMC password wrong", rule: "failed", arrange: cycled("wrong", bmc.Faults{})},
		{name: "BMC does nothing", rule: "failed", arrange: cycled("right", bmc.Faults{Liar: true})},
		{name: "BMC gone", rule: "bmc-trouble", arrange: func(t *testing.T, r *whyRig) subject {
			id, service := r.withBMC(t, "right", bmc.Faults{})
			testkit.Eventually(t, rig.Soon, func() bool { return rig.Condition(r.Machine(id), "BMCReachable").GetStatus() },
				"the BMC is never seen")
			if err := service.Close(); err != nil {
				t.Fatal(err)
			}
			return subject{machine: id}
		}},
		{name: "MAAS gone", rule: "provider-trouble", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.close()
			return subject{machine: x.id}
		}},
		{name: "MAAS released the machine", rule: "provider-drift", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.Region.Change(x.systemID, func(m *maastest.Machine) { m.Status = ms.Ready })
			return subject{machine: x.id}
		}},
		{name: "MAAS lost the machine", rule: "provider-drift", arrange: func(t *testing.T, r *whyRig) subject {
			x := inRegion(t, r)
			x.Region.Lose(x.systemID)
			return subject{machine: x.id}
		}},
		{name: "MAAS key wrong", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			x := r.maas(t, &maastest.Machine{Status: ms.New})
			x.key("a:b:c")
			x.onboard("")
			x.fails()
			return subject{machine: x.id}
		}},
	}
}
