package decider_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

func TestTheGrantOfAWriteTakesProvisionedAway(t *testing.T) {
	for name, c := range map[string]struct {
		step operation.Step
		want bool
	}{
		"a write":              {operation.Step{Kind: kind.Repave}, true},
		"an erasure":           {operation.Step{Kind: kind.Erase}, true},
		"a provider's deploy":  {operation.Step{Kind: kind.ProviderAction, Mode: "deploy"}, true},
		"a provider's release": {operation.Step{Kind: kind.ProviderAction, Mode: "release"}, true},
		"a provider's switch":  {operation.Step{Kind: kind.ProviderAction, Mode: "power_on"}, false},
		"a reboot":             {operation.Step{Kind: kind.Reboot}, false},
		"a configuration":      {operation.Step{Kind: kind.Net}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t, c.step)
			of := []fleet.ConditionType{fleet.Provisioned, fleet.Degraded, fleet.RAIDDegraded}
			for _, t := range of {
				s.conditions[t] = true
			}
			h, site := host("s-1", true), site("s-2")
			h.Capabilities = append(h.Capabilities, "erase")
			site.Capabilities = append(site.Capabilities, "provider_action", "provider:maas")
			s.setAgents(h, site)
			if c.step.Kind == kind.ProviderAction {
				s.world.Provider = "maas"
			}
			s.look()
			if !s.conditions[fleet.Provisioned] {
				t.Fatal("gone before anything was granted")
			}
			d := s.ask(s.latest(), "boot-1")
			for _, of := range of {
				if d.Machine.Unprovision != c.want || s.conditions[of] == c.want {
					t.Errorf("unprovision %t, %s %t", d.Machine.Unprovision, of, s.conditions[of])
				}
			}
		})
	}
}

func TestAWriteThatEndsEarlyLeavesNoProvisionedMachine(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Repave})
	s.conditions[fleet.Provisioned] = false // as the grant has left it
	s.do(operation.CancelAsked{Actor: "tester"})
	s.result(s.latest(), operation.OutcomeCanceled, nil)
	s.ended(operation.Canceled, "CANCELED_BY_REQUEST")
	if s.conditions[fleet.Provisioned] || s.conditions[fleet.NeedsIntervention] {
		t.Errorf("conditions %v", s.conditions)
	}
}

func TestARebootDoesNotCureAFailedWrite(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Reboot})
	s.op.Type = fleet.Reboot
	s.raise(fleet.CauseReimage, "")
	s.raise(fleet.CauseReboot, "")
	s.world.TargetBootID = "boot-2"
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.BootIDBefore: "boot-1",
		evidence.BootIDAfter: "boot-2"})
	s.ended(operation.Succeeded, "")
	if _, left := s.causes[fleet.CauseReimage]; !left || len(s.causes) != 1 || !s.conditions[fleet.NeedsIntervention] {
		t.Errorf("causes %v", s.causes)
	}
}

func TestAnotherPlanDoesNotCureAFailedPlan(t *testing.T) {
	for plan, cured := range map[string]bool{"plan-a": true, "plan-b": false} {
		s := granted(t, operation.Step{Kind: kind.Net})
		s.op.Type, s.op.PlanID = fleet.RunPlan, plan
		s.raise(fleet.CausePlan, "plan-a")
		s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
		s.ended(operation.Succeeded, "")
		if s.conditions[fleet.NeedsIntervention] == cured {
			t.Errorf("%s: causes %v", plan, s.causes)
		}
	}
}

func TestAnUnknownOutcomeIsCuredByItsSettlement(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Net})
	s.result(s.latest(), operation.OutcomeUnknown, nil)
	s.ended(operation.Failed, "OUTCOME_UNKNOWN")
	if s.causes[fleet.CauseUnknown] != s.latest().ID {
		t.Fatalf("causes %v", s.causes)
	}
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	if s.conditions[fleet.NeedsIntervention] {
		t.Errorf("a late result settles the command, and the causes are %v", s.causes)
	}
}
