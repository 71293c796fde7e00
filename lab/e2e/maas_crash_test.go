package e2e

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// maasSteps is how long each step of a workflow may take in which the agent dies with an unknown outcome.
const maasSteps = "15"

// TestMAASCrashes kills the site's agent after every request that an onboarding and a decommission make to MAAS, and
// before those whose effect is not visible. Every effect happens at most once. Where MAAS shows the effect of a
// request, the workflow ends by itself in the state of its mode. Where it is unknown, an operator settles the command,
// and it goes on.
func TestMAASCrashes(t *testing.T) {
	t.Parallel()
	r := rig.NewMAAS(t)
	for i, c := range []struct {
		point string
		hit   uint64
	}{
		// create, commission, boot interface, allocate, annotate, deploy; erase, delete. The layout is MAAS's own by default.
		{"agent.after-effect", 1}, {"agent.after-effect", 2}, {"agent.after-effect", 3}, {"agent.after-effect", 4},
		{"agent.after-effect", 5},
		{"agent.after-effect", 6}, {"agent.after-effect", 7}, {"agent.after-effect", 8},
		{"maas.before-request", 6}, {"maas.before-request", 7}, {"maas.before-request", 8},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.point, c.hit), func(t *testing.T) {
			q := *r
			q.T = t
			dieAt(&q, i+20, c.point, c.hit)
		})
	}
}

func dieAt(r *rig.MAAS, n int, point string, hit uint64) {
	id, mac := r.Register(n)
	r.Site.WaitConnected()
	crashes, settled := r.Site.Crashes(), 0
	defer r.Site.FP.Set(point, failpoint.Error().At(hit))()
	params := map[string]string{}
	if point == "maas.before-request" {
		params["timeout_seconds"] = maasSteps
	}
	begin := func(request string, kind baremetalv1.Workflow_Kind, mode baremetalv1.Workflow_Mode) {
		harness.Must(r.T, r.Flows.StartWorkflow, &baremetalv1.StartWorkflowRequest{
			MachineId: id, RequestId: request, Kind: kind, Mode: mode, EnterMaintenance: true, Params: params,
		})
	}
	begin("in", baremetalv1.Workflow_ONBOARDING, 0)
	settled += drive(r, id, func() bool { m, ok := r.Region.ByMAC(mac); return ok && m.Status == ms.Deployed })
	host := r.Boot(id, mac)
	settled += drive(r, id, nil)
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		r.T.Errorf("the node is %s after its onboarding", got)
	}
	before, _ := r.Region.ByMAC(mac)
	begin("out", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION)
	settled += drive(r, id, nil)
	if err := host.Stop(); err != nil {
		r.T.Error(err)
	}
	if _, there := r.Region.ByMAC(mac); there {
		r.T.Error("MAAS still has the machine")
	}
	if r.Site.Crashes() != crashes+1 {
		r.T.Errorf("the agent died %d times", r.Site.Crashes()-crashes)
	}
	if want := point == "maas.before-request"; (settled > 0) != want {
		r.T.Errorf("a person had to settle %d commands", settled)
	}
	atMostOnce(r, before.SystemID)
}

// atMostOnce holds the effects on a machine against one life of it.
func atMostOnce(r *rig.MAAS, systemID string) {
	r.T.Helper()
	acted := map[string]int{}
	for _, q := range r.Region.Requests("") {
		if q.Acted && (q.SystemID == systemID || q.Form.Get("system_id") == systemID) {
			acted[q.Op]++
		}
	}
	for _, op := range []string{"POST commission", "POST allocate", "POST deploy", "POST release", "DELETE machine"} {
		if acted[op] != 1 {
			r.T.Errorf("%s acted %d times in one life: %v", op, acted[op], acted)
		}
	}
}

// drive waits until the newest workflow has completed, or until reached; it does what an operator would where the
// workflow waits for one. It returns how many commands had to be settled.
func drive(r *rig.MAAS, id string, reached func() bool) (settled int) {
	r.T.Helper()
	for step := 0; step < 8; step++ {
		var f *baremetalv1.Workflow
		testkit.Eventually(r.T, 3*rig.Soon, func() bool {
			f = r.Flow(id)
			return f.GetState() != baremetalv1.Workflow_PENDING && f.GetState() != baremetalv1.Workflow_RUNNING ||
				reached != nil && reached()
		}, "the workflow of %s goes nowhere", id)
		switch {
		case f.GetState() == baremetalv1.Workflow_COMPLETED, reached != nil && reached():
			return settled
		case f.GetReason() == "OUTCOME_UNKNOWN":
			command := r.C.Machine(id).GetStatus().GetUnresolvedCommandId()
			harness.Must(r.T, r.C.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{
				MachineId: id, CommandId: command, Verdict: "did_not_happen", Comment: "MAAS was never asked",
			})
			settled++
		}
		harness.Must(r.T, r.Flows.ActOnWorkflow, &baremetalv1.ActOnWorkflowRequest{
			WorkflowId: f.GetWorkflowId(), RequestId: fmt.Sprintf("resume-%d-%d", f.GetAttemptCount(), step),
			Action: baremetalv1.WorkflowAction_WORKFLOW_ACTION_RESUME,
		})
	}
	r.T.Fatalf("%v", r.Flow(id))
	return settled
}
