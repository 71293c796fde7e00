package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// elsewhere are failpoints that no operation passes, and the tests that crash there.
var elsewhere = map[string]string{
	"agent.after-enroll-key": "TestEnrolmentSurvivesCrashes", "agent.after-enroll-answer": "TestEnrolmentSurvivesCrashes",
	"agent.rotate-after-key":          "TestRotationSurvivesCrashes",
	"agent.rotate-after-next-durable": "TestRotationSurvivesCrashes",
	"agent.reenroll-before-save":      "agent.TestAMachineThatWasOffPastItsExpiryComesBack",
	"enroll.after-sign":               "TestEnrolmentSurvivesCrashes",
	"enroll.after-commit":             "TestEnrolmentSurvivesCrashes",
	"ca.half-made":                    "TestKill9", "ca.before-rename": "TestKill9", "ca.after-rename": "TestKill9",
	"ca.next-half-made":        "authority.TestRotationUnderLoad",
	"ca.next-before-rename":    "authority.TestRotationUnderLoad",
	"authority.after-rotate":   "authority.TestRotationUnderLoad",
	"authority.after-withdraw": "authority.TestRotationUnderLoad",
	"site.before-stored":       "sync.TestAKillAtEveryPoint", "site.after-stored": "sync.TestAKillAtEveryPoint",
	"site.after-applied": "sync.TestAKillAtEveryPoint", "site.after-reported": "sync.TestAKillAtEveryPoint",
	"rollout.created": "TestARolloutSurvivesDeaths", "rollout.claimed": "TestARolloutSurvivesDeaths",
	"rollout.before-start-commit": "TestARolloutSurvivesDeaths", "rollout.started": "TestARolloutSurvivesDeaths",
	"blob.at-write": "image.TestKilledInTheMiddle", "blob.before-place": "image.TestKilledInTheMiddle",
	"blob.after-place": "image.TestKilledInTheMiddle",
	// it is no crash; TestEverythingTwice covers every message
	"wire.command-again":     "chaos.TestAFewRuns",
	"image.before-entry":     "image.TestKilledInTheMiddle",
	"bucket.before-part":     "bucket.TestKilledAmidAnIngest",
	"bucket.before-complete": "bucket.TestKilledAmidAnIngest", "bucket.after-complete": "bucket.TestKilledAmidAnIngest",
	"ssh.before-start":       "script.TestAnAgentThatDies",
	"cluster.after-cordon":   "cluster.TestACrashAtEveryPlace",
	"join.before-kubeadm":    "join.TestAnAgentThatDies",
	"maas.before-request":    "TestMAASCrashes",
	"handover.before-notify": "TestCommandsAreFoundWithoutNotifications",
	// it is no crash: without the look nothing makes up for a hand-over
	"handover.before-look":      "TestCommandsAreHandedOver",
	"webhook.before-deliveries": "engine.TestADeathAnywhereLosesNoEvent",
	"webhook.after-deliveries":  "engine.TestADeathAnywhereLosesNoEvent",
	"webhook.before-send":       "engine.TestADeathAnywhereLosesNoEvent",
	"webhook.after-send":        "engine.TestADeathAnywhereLosesNoEvent",
	"bmc.before-password":       "bmcs.TestACrashLosesNoPassword",
	"bmc.after-password":        "bmcs.TestACrashLosesNoPassword",
	"bmc.before-settle":         "bmcs.TestACrashLosesNoPassword",
	"site.blob-after-part":      "cache.TestACrashInEveryPlace", "site.blob-after-rename": "cache.TestACrashInEveryPlace",
}

func TestEveryFailpointIsTried(t *testing.T) {
	known := slices.Concat(harness.AgentPoints(), harness.ControllerPoints())
	for _, name := range failpoint.Names() {
		if !slices.Contains(known, name) && elsewhere[name] == "" {
			t.Errorf("no test crashes at failpoint %s", name)
		}
	}
}

// TestACrashAtEveryFailpoint runs every kind of operation, by host agent and by site agent, over one crash at every
// failpoint that it may pass.
func TestACrashAtEveryFailpoint(t *testing.T) {
	faults := harness.ArmControllers(t)
	c := harness.New(t, harness.Options{})
	makePlan(t, c.Client)
	var mu sync.Mutex
	hit, outcomes, runs := map[string]int{}, map[string]int{}, 0
	t.Run("runs", func(t *testing.T) {
		for _, k := range kinds {
			for _, point := range slices.Concat(harness.AgentPoints(), harness.ControllerPoints()) {
				for _, site := range []bool{false, true} {
					if !passes(k, point, site) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/site=%v", k.name, point, site), func(t *testing.T) {
						t.Parallel()
						fired, outcome := crashAt(t, c, faults, k, point, site)
						mu.Lock()
						defer mu.Unlock()
						runs++
						outcomes[outcome]++
						if fired {
							hit[point]++
						}
					})
				}
			}
		}
	})
	for _, point := range slices.Concat(harness.AgentPoints(), harness.ControllerPoints()) {
		if hit[point]+faults.Struck()[point] == 0 {
			t.Errorf("nothing ever passed failpoint %s: the crash there is not tried", point)
		}
	}
	t.Logf("%d runs; outcomes %v; crashes of agents %v, failures of controllers %v", runs, outcomes, hit, faults.Struck())
}

// passes leaves out what could not happen.
func passes(k kind, point string, site bool) bool {
	switch {
	case k.housekeeping:
		return !site && !strings.HasPrefix(point, "agent.")
	case strings.HasPrefix(point, "agent.reconfig"):
		return k.name == "reconfigure"
	}
	return true
}

func crashAt(
	t *testing.T, c *harness.Cluster, faults *harness.ControllerFaults, k kind, point string, site bool,
) (fired bool, outcome string) {
	m := c.NewMachine(t, harness.MachineOptions{Site: site, Supervised: true})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	if strings.HasPrefix(point, "agent.") {
		m.FP.Set(point, failpoint.Error().At(1))
	} else {
		faults.Order(point)
	}
	op, err := k.start(t, c.Client, m.ID, "work", rig.PatientTime)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	got := c.Wait(op.GetOperationId(), endLimit)
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if !strings.HasPrefix(point, "agent.") && got.GetPhase() != rig.Succeeded {
		t.Errorf("a controller that fails at %s makes a healthy machine's operation end as %v\n%v", point, got, h)
	}
	if !m.Running() {
		t.Errorf("the agent ended with %v", m.End())
	}
	return m.Crashes() > 0, got.GetPhase().String() + " " + got.GetError().GetCode()
}
