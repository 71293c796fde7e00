package workflow_test

import (
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// What another try may mend, as it is documented; everything else needs a person. Reasons of providers and clusters,
// from 240 on, have tests beside them.
const triedAgain = `AGENT_UNAVAILABLE INSTALLER_SILENT SITE_AGENT_SILENT BMC_UNREACHABLE BMC_NO_EFFECT IMAGE_UNAVAILABLE
IMAGE_DIGEST_MISMATCH EXECUTION_FAILED EXECUTOR_PANICKED DISK_WRITE_ERROR STEP_TIMEOUT COMMAND_EXPIRED GRANT_REFUSED`

func TestWhichFailuresAreTriedAgain(t *testing.T) {
	for name, number := range baremetalv1.Reason_value {
		if number >= 240 {
			continue
		}
		want := slices.Contains(strings.Fields(triedAgain), name)
		if _, retryable := workflow.Classify(name); retryable != want {
			t.Errorf("%s: retryable %t, want %t", name, retryable, want)
		}
	}
}

// wellFacts let every check of a decommission and an onboarding pass.
func wellFacts(k workflow.Kind, m workflow.Mode) workflow.StageFacts {
	f := workflow.StageFacts{
		Kind: k, Mode: m, Machine: fleet.Facts{Phase: fleet.Maintenance, NodeState: fleet.Enrolling}, AgentLive: true,
		AgentImage:       "sha256:dd",
		CredentialsKnown: true, PowerOff: true, PowerSeenAt: "then",
		Evidence: map[string]string{evidence.BootIDAfter: "b", evidence.ImageDigest: "dd", evidence.EraseMethod: "ata"},
	}
	return f
}

// TestChecksSayNo: every stage's own check passes where all is well, and each thing that it is about makes it fail.
func TestChecksSayNo(t *testing.T) {
	drop := func(key string) func(*workflow.StageFacts) {
		return func(f *workflow.StageFacts) { delete(f.Evidence, key) }
	}
	for name, c := range map[string]struct {
		stage string
		kind  workflow.Kind
		mode  workflow.Mode
		spoil func(*workflow.StageFacts)
		wait  bool
	}{
		"not in maintenance": {workflow.DisableNode, workflow.Decommission, workflow.SoftReset,
			func(f *workflow.StageFacts) { f.Machine.Phase = fleet.Ready }, false},
		"no new boot": {workflow.ValidateClean, workflow.Decommission, workflow.SoftReset, drop(evidence.BootIDAfter),
			false},
		"no image": {workflow.ValidateClean, workflow.Decommission, workflow.Reimage, drop(evidence.ImageDigest),
			false},
		"no image, erased": {workflow.ValidateClean, workflow.Decommission, workflow.StorageCleanup,
			drop(evidence.ImageDigest), false},
		"image, not erased": {workflow.ValidateClean, workflow.Decommission, workflow.StorageCleanup,
			drop(evidence.EraseMethod), false},
		"not erased": {workflow.ValidateClean, workflow.Decommission, workflow.FullDecommission,
			drop(evidence.EraseMethod), false},
		"retired with data": {workflow.RetireNode, workflow.Decommission, workflow.FullDecommission,
			drop(evidence.EraseMethod), false},
		"removed with data": {workflow.RemoveRecord, workflow.Decommission, workflow.FullDecommission,
			drop(evidence.EraseMethod), false},
		"in service before": {workflow.ApproveNode, workflow.Onboarding, workflow.NoMode,
			func(f *workflow.StageFacts) { f.Machine.NodeState = fleet.Active }, false},
		"credentials unknown": {workflow.ResolvePower, workflow.Onboarding, workflow.NoMode,
			func(f *workflow.StageFacts) { f.CredentialsKnown = false }, false},
		"agent not there": {workflow.VerifyNode, workflow.Onboarding, workflow.NoMode,
			func(f *workflow.StageFacts) { f.AgentLive = false }, true},
		"another image boots": {workflow.VerifyNode, workflow.Onboarding, workflow.NoMode,
			func(f *workflow.StageFacts) { f.AgentImage = "sha256:ee" }, false},
		"in a cluster unknown": {workflow.DrainNode, workflow.Decommission, workflow.FullDecommission,
			func(f *workflow.StageFacts) {
				f.Machine.Conditions = map[fleet.ConditionType]bool{fleet.InCustomerCluster: true}
			}, false},
	} {
		f := wellFacts(c.kind, c.mode)
		if v := workflow.Judge(c.stage, f); !v.Pass || v.Code != "" {
			t.Errorf("%s: fails where all is well: %+v", name, v)
		}
		c.spoil(&f)
		if v := workflow.Judge(c.stage, f); v.Pass || v.Code == "" || v.Message == "" || v.Wait != c.wait {
			t.Errorf("%s: %+v", name, v)
		}
	}
	drained := wellFacts(workflow.Decommission, workflow.FullDecommission)
	drained.Machine.Conditions = map[fleet.ConditionType]bool{fleet.InCustomerCluster: true, fleet.Drained: true}
	if v := workflow.Judge(workflow.DrainNode, drained); !v.Pass {
		t.Errorf("what is drained is not: %+v", v)
	}
}

// TestObservationsProveOrDoNot: what may be adopted is adopted when it is seen, and only then.
func TestObservationsProveOrDoNot(t *testing.T) {
	for stage, spoil := range map[string]func(*workflow.StageFacts){
		workflow.WaitForEnrollment: func(f *workflow.StageFacts) { f.AgentLive = false },
		workflow.PowerOffNode:      func(f *workflow.StageFacts) { f.PowerOff = false },
	} {
		kind := workflow.Decommission
		s, ok := workflow.Find(kind, stage)
		if !ok || !s.Adoptable {
			t.Errorf("%s cannot be adopted", stage)
		}
		f := wellFacts(kind, workflow.FullDecommission)
		if v := workflow.Observed(s, f); !v.Pass {
			t.Errorf("%s is seen, and not taken: %+v", stage, v)
		}
		spoil(&f)
		if v := workflow.Observed(s, f); v.Pass || v.Message == "" {
			t.Errorf("%s is not seen, and taken: %+v", stage, v)
		}
	}
	if s, _ := workflow.Find(workflow.Decommission, workflow.CleanupStorage); workflow.Observed(s,
		wellFacts(workflow.Decommission, workflow.FullDecommission)).Pass {
		t.Error("an erasure is taken as done because nothing shows otherwise")
	}
}

// The node states from which a workflow may begin, by kind and mode. A deleted node is refused before this check.
func TestWhereWorkflowsBegin(t *testing.T) {
	onboarding := "discovered pending bootstrap_issued enrolling installed quarantined"
	inLife := "active offline draining quarantined"
	for _, n := range workflow.NodeStates() {
		for m, want := range map[workflow.Mode]string{
			workflow.NoMode: onboarding, workflow.SoftReset: inLife, workflow.Reimage: inLife, workflow.StorageCleanup: inLife,
			workflow.FullDecommission: "discovered pending install_failed installed bootstrap_issued enrolling retired deleted " + inLife,
		} {
			kind := workflow.Decommission
			if m == workflow.NoMode {
				kind = workflow.Onboarding
			}
			r := workflow.Startable(kind, m, n)
			if (r == nil) != slices.Contains(strings.Fields(want), string(n)) || r != nil &&
				(r.Reason != "NODE_TRANSITION_ILLEGAL" || r.Message == "") {
				t.Errorf("%s %s of a node that is %s: %+v", kind, m, n, r)
			}
		}
	}
}
