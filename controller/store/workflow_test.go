package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"google.golang.org/protobuf/proto"
)

const lifeMAC = "52:54:00:aa:00:01"

// lifeRig is a machine that is in service, with a simulated agent that can do everything by itself.
type lifeRig struct {
	*testing.T
	s     *store.Store
	agent enrolled
	epoch int64
	seq   uint64
	boot  string
	// crash is the failpoint at which the controller dies the first time that it decides on each event.
	crash   string
	crashes int
	// agentDies opens the agent's session anew before each of its answers.
	agentDies bool
	// fail gives another result than success, once, for commands of a kind.
	fail map[string]operation.Resulted
}

func newLifeRig(t *testing.T) *lifeRig {
	t.Helper()
	s := storetest.New(t)
	r := &lifeRig{T: t, s: s, boot: "boot-1"}
	register(t, s, "m-1", lifeMAC)
	r.agent = enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	lease(t, s)
	r.open()
	r.agent.arrived(t, s, lifeMAC)
	maintenance(t, s, "m-1")
	if got := r.node(); got != "ACTIVE" {
		t.Fatalf("the node is %s", got)
	}
	return r
}

func (r *lifeRig) open() []string {
	r.Helper()
	h := r.agent.hello("st-1", r.boot)
	h.Capabilities = []string{"reboot", "netboot", "repave", "erase", "reconfig", "reset_devices"}
	h.Simulated, h.LastGrantSeq = true, r.seq
	r.epoch++
	return open(r, r.s, h).Operations
}

func (r *lifeRig) node() string {
	r.Helper()
	return strings.TrimPrefix(machine(r, r.s, "m-1").GetStatus().GetNodeState().String(), "NODE_STATE_")
}

func (r *lifeRig) start(k workflow.Kind, m workflow.Mode) *baremetalv1.Workflow {
	r.Helper()
	_, _, err := r.s.StartWorkflow(r.Context(), store.WorkflowStart{
		MachineID: "m-1", RequestID: "life", Kind: k, Mode: m, Actor: "tester", Inputs: inputs("img"),
	}, now())
	if err != nil {
		r.Fatal(err)
	}
	return r.workflow()
}

// workflow is the newest one of the machine.
func (r *lifeRig) workflow() *baremetalv1.Workflow {
	r.Helper()
	all, err := r.s.ListWorkflows(r.Context(), store.WorkflowFilter{MachineID: "m-1", Limit: 10})
	if err != nil || len(all) == 0 {
		r.Fatalf("no workflow (%v)", err)
	}
	return all[0]
}

// decide brings an event to an operation, over a crash of the controller, after which the event comes again.
func (r *lifeRig) decide(op string, e operation.Event) *store.Applied {
	r.Helper()
	if r.crash != "" {
		scope := failpoint.NewScope()
		scope.Set(r.crash, failpoint.Error().At(1))
		if _, err := r.s.Decide(failpoint.With(r.Context(), scope), op, 0, e, now()); err == nil {
			r.Fatalf("no crash at %s", r.crash)
		}
		r.crashes++
		if g, asked := e.(operation.GrantAsked); asked {
			r.seq++
			g.Seq, g.Earlier = r.seq, asksBefore(r.seq)
			e = g
		}
	}
	return decide(r, r.s, op, e)
}

// answers is what a healthy agent reads back.
func (r *lifeRig) answers(c *fleetv1.CommandSpec) map[string]string {
	switch c.GetAction().(type) {
	case *fleetv1.CommandSpec_Netboot:
		return map[string]string{evidence.BootNext: "pxe"}
	case *fleetv1.CommandSpec_Erase:
		return map[string]string{evidence.EraseMethod: "nvme-sanitize"}
	case *fleetv1.CommandSpec_Repave:
		return map[string]string{evidence.ImageDigest: "sha256:dd"}
	case *fleetv1.CommandSpec_ResetDevices:
		return map[string]string{evidence.DevicesReset: "0000:17:00.0 flr"}
	case *fleetv1.CommandSpec_ProviderAction:
		return answersOfMAAS(c.GetProviderAction().GetAction())
	}
	return nil
}

// kindOf names what a command does: its kind, or the action of the provider.
func kindOf(c *fleetv1.CommandSpec) string {
	if action := c.GetProviderAction().GetAction(); action != "" {
		return action
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c.GetAction()), "*fleetv1.CommandSpec_"))
}

// step answers the command that waits for the agent; false if none does.
func (r *lifeRig) step(op string) bool {
	r.Helper()
	if r.agentDies {
		for _, id := range r.open() {
			decide(r, r.s, id, operation.SessionOpened{AgentID: r.agent.id, StateID: "st-1", BootID: r.boot, OfTarget: true})
		}
	}
	out, err := r.s.Unsettled(r.Context(), r.agent.id)
	if err != nil {
		r.Fatal(err)
	}
	if len(out) == 0 {
		return false
	}
	spec := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(out[0].Spec, spec); err != nil {
		r.Fatal(err)
	}
	r.seq++
	g := operation.GrantAsked{CommandID: out[0].CommandID, AgentID: r.agent.id, StateID: "st-1", BootID: r.boot, Seq: r.seq, Digest: out[0].Digest, Epoch: r.epoch, Earlier: asksBefore(r.seq)}
	if d := r.decide(op, g); !d.Decision.Grant {
		r.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	result := operation.Resulted{CommandID: out[0].CommandID, AgentID: r.agent.id, StateID: "st-1", Outcome: operation.OutcomeSucceeded, Evidence: r.answers(spec)}
	if bad, ok := r.fail[kindOf(spec)]; ok {
		delete(r.fail, kindOf(spec))
		bad.CommandID, bad.AgentID, bad.StateID = result.CommandID, result.AgentID, result.StateID
		r.decide(op, bad)
		return true
	}
	if kindOf(spec) == "reboot" {
		r.boot = fmt.Sprintf("boot-%d", r.seq+100)
		r.open()
		result.SessionBootID = r.boot
	}
	r.decide(op, result)
	return true
}

// run works on the workflow's attempt until it ends or waits.
func (r *lifeRig) run() *baremetalv1.Workflow {
	r.Helper()
	op := r.workflow().GetOperationId()
	for range 100 {
		r.decide(op, operation.Look{})
		if violation := r.violation(); violation != "" {
			r.Error(violation)
		}
		if r.workflow().GetEndedAt() != nil || !r.step(op) {
			break
		}
	}
	return r.workflow()
}

func (r *lifeRig) violation() string {
	r.Helper()
	bad, err := r.s.WorkflowViolations(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	if len(bad) == 0 {
		return ""
	}
	return bad[0].Text
}

func (r *lifeRig) act(a workflow.Action, requestID string) (*store.Acted, error) {
	return r.s.ActOnWorkflow(r.Context(), store.WorkflowAct{
		WorkflowID: r.workflow().GetWorkflowId(), RequestID: requestID, Action: a, Actor: "tester",
		Inputs: store.SameInputs(inputs("img")),
	}, now())
}

func (r *lifeRig) mustAct(a workflow.Action, requestID string) *store.Acted {
	r.Helper()
	out, err := r.act(a, requestID)
	if err != nil {
		r.Fatalf("%s: %v", a, err)
	}
	return out
}

var crashPoints = []string{"", "store.before-apply", "store.before-commit", "store.after-commit"}

// TestDecommissionsEndAsTheirModeSays, with the controller killed before, in and after the transaction of every decision, and
// with the agent killed before every answer.
func TestDecommissionsEndAsTheirModeSays(t *testing.T) {
	for _, mode := range workflow.Modes(workflow.Decommission) {
		for _, crash := range crashPoints {
			for _, agentDies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,crash=%s,agent=%v", mode, crash, agentDies), func(t *testing.T) {
					t.Parallel()
					r := newLifeRig(t)
					r.crash, r.agentDies = crash, agentDies
					w := r.start(workflow.Decommission, mode)
					if w.GetState() != baremetalv1.Workflow_PENDING {
						t.Fatalf("it starts as %s", w.GetState())
					}
					w = r.run()
					r.ended(w, mode)
					if crash != "" && r.crashes < 4 {
						t.Errorf("only %d crashes", r.crashes)
					}
				})
			}
		}
	}
}

// commandsOf a mode: each at most once, whatever dies.
var commandsOf = map[workflow.Mode]string{
	workflow.SoftReset:        "reboot",
	workflow.Reimage:          "netboot,reboot,repave",
	workflow.StorageCleanup:   "erase,netboot,netboot,reboot,repave",
	workflow.FullDecommission: "erase,netboot",
}

func (r *lifeRig) ended(w *baremetalv1.Workflow, mode workflow.Mode) {
	r.Helper()
	if w.GetState() != baremetalv1.Workflow_COMPLETED {
		r.Fatalf("it ended as %v", w)
	}
	list, err := r.s.ListCommands(r.Context(), store.CommandFilter{OperationID: w.GetOperationId(), Limit: 1000})
	if err != nil {
		r.Fatal(err)
	}
	var kinds []string
	for _, c := range list {
		kinds = append(kinds, c.GetKind())
	}
	slices.Sort(kinds)
	if got := strings.Join(kinds, ","); got != commandsOf[mode] {
		r.Errorf("commands %s, want %s", got, commandsOf[mode])
	}
	intact(r, r.s, "m-1")
	m := machine(r, r.s, "m-1")
	if mode != workflow.FullDecommission {
		if r.node() != "ACTIVE" || m.GetStatus().GetPhase() != baremetalv1.MachineStatus_MAINTENANCE {
			r.Errorf("the machine is %v", m.GetStatus())
		}
		return
	}
	if r.node() != "DELETED" || m.GetDeletedAt() == nil {
		r.Errorf("the machine is %v", m.GetStatus())
	}
	if n := count(r, r.s, "SELECT count(*) FROM agent_certs WHERE revoked_at IS NULL"); n != 0 {
		r.Errorf("%d certificates live on", n)
	}
	for _, to := range []string{"draining", "retired", "removing", "deleted"} {
		if n := count(r, r.s, "SELECT count(*) FROM node_state_log WHERE to_state = $1 AND triggered_by = 'workflow'", to); n != 1 {
			r.Errorf("%d moves to %s", n, to)
		}
	}
	// The same hardware comes back as a new record, and the old identity never.
	register(r, r.s, "m-2", lifeMAC)
	_, err = r.s.Register(r.Context(), &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{}}, "tester", now())
	_ = wantReason(r, err, "MACHINE_DELETED")
}

// TestResumeTenTimesAtOnceMakesOneOperation.
func TestResumeTenTimesAtOnceMakesOneOperation(t *testing.T) {
	r := newLifeRig(t)
	r.fail = map[string]operation.Resulted{"erase": {Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED", Message: "the disk said no"}}
	r.start(workflow.Decommission, workflow.FullDecommission)
	w := r.run()
	if w.GetState() != baremetalv1.Workflow_FAILED_RETRYABLE || w.GetCurrentStage() != workflow.CleanupStorage || w.GetFailureClass() != string(workflow.ClassExecution) {
		t.Fatalf("it is %v", w)
	}
	if r.node() != "QUARANTINED" {
		t.Errorf("the node is left %s", r.node())
	}
	for _, err := range together(t, 10, func(_ context.Context, i int) error {
		_, err := r.act(workflow.Resume, fmt.Sprint("press-", i))
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if n := count(t, r.s, "SELECT count(*) FROM operations WHERE type = 'DECOMMISSION'"); n != 2 {
		t.Errorf("%d operations", n)
	}
	if n := count(t, r.s, "SELECT count(*) FROM audit_log WHERE verb = 'WORKFLOW_RESUME'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	w = r.run()
	if w.GetState() != baremetalv1.Workflow_COMPLETED || w.GetAttemptCount() != 2 || r.node() != "DELETED" {
		t.Errorf("it ended as %v, the node %s", w, r.node())
	}
}

// TestStartIsIdempotentAndExclusive: one request, one workflow; one machine, one open workflow; nothing destructive behind it.
func TestStartIsIdempotentAndExclusive(t *testing.T) {
	r := newLifeRig(t)
	starting := store.WorkflowStart{MachineID: "m-1", RequestID: "same", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester"}
	ids := make([]string, 10)
	for i, err := range together(t, 10, func(ctx context.Context, i int) error {
		op, _, err := r.s.StartWorkflow(ctx, starting, now())
		ids[i] = op.GetOperationId()
		return err
	}) {
		if err != nil || ids[i] != ids[0] {
			t.Errorf("%s (%v)", ids[i], err)
		}
	}
	other := starting
	other.Mode = workflow.FullDecommission
	_, _, err := r.s.StartWorkflow(t.Context(), other, now())
	wantReason(t, err, "REQUEST_ID_REUSED")
	other.RequestID = "other"
	_, _, err = r.s.StartWorkflow(t.Context(), other, now())
	wantReason(t, err, "WORKFLOW_ACTIVE")
	r.fail = map[string]operation.Resulted{"reboot": {Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED"}}
	r.run()
	_, _, err = r.s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "behind", Type: fleet.Reimage, Actor: "tester", Inputs: inputs("img")}, now())
	wantReason(t, err, "MACHINE_QUARANTINED")
	_, _, err = r.s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "by-plan", Type: fleet.RunPlan, PlanID: "decommission-soft-reset", Actor: "tester"}, now())
	wantReason(t, err, "INVALID_FIELD")
}

// TestEnterMaintenanceFirst: the operator's word opens that operation before the workflow's.
func TestEnterMaintenanceFirst(t *testing.T) {
	r := newLifeRig(t)
	exit := start(t, r.s, store.StartRequest{MachineID: "m-1", RequestID: "exit", Type: fleet.ExitMaintenance})
	decide(t, r.s, exit.GetOperationId(), operation.Look{})
	starting := store.WorkflowStart{MachineID: "m-1", RequestID: "life", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester"}
	_, _, err := r.s.StartWorkflow(t.Context(), starting, now())
	wantReason(t, err, "WRONG_PHASE")
	starting.EnterMaintenance = true
	if _, _, err := r.s.StartWorkflow(t.Context(), starting, now()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, r.s, "SELECT count(*) FROM operations WHERE type = 'ENTER_MAINTENANCE' AND phase = 'SUCCEEDED' AND request_id = 'life/enter-maintenance'"); n != 1 {
		t.Errorf("%d operations entered maintenance", n)
	}
	if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
		t.Errorf("it ended as %v", w)
	}
}

// TestACustomersMachineIsNotTaken: what cannot be drained fails with its reason, and an operator's way out is there.
func TestACustomersMachineIsNotTaken(t *testing.T) {
	r := newLifeRig(t)
	exec(t, r.s, "INSERT INTO machine_conditions (machine_id, type, status, reason, message, last_transition) VALUES ('m-1', 'InCustomerCluster', true, 'x', '', now())")
	r.start(workflow.Decommission, workflow.FullDecommission)
	w := r.run()
	if w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION || w.GetReason() != "CLUSTER_NOT_CONFIGURED" || w.GetCurrentStage() != workflow.ForceRelease {
		t.Fatalf("it is %v", w)
	}
	if n := count(t, r.s, "SELECT count(*) FROM commands"); n != 0 {
		t.Errorf("%d commands were made", n)
	}
	if _, err := r.act(workflow.Adopt, "adopt"); err == nil {
		t.Error("a stage was taken as done that nothing shows to be")
	}
	exec(t, r.s, "UPDATE machine_conditions SET status = false WHERE type = 'InCustomerCluster'")
	r.mustAct(workflow.RetryStage, "again")
	if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
		t.Errorf("it ended as %v", w)
	}
}

// TestCancelAndRunAgain: a cancelled workflow leaves the node in service, and can be run again.
func TestCancelAndRunAgain(t *testing.T) {
	r := newLifeRig(t)
	r.start(workflow.Decommission, workflow.SoftReset)
	r.decide(r.workflow().GetOperationId(), operation.Look{})
	if r.node() != "DRAINING" || r.workflow().GetState() != baremetalv1.Workflow_RUNNING {
		t.Fatalf("the node is %s, the workflow %v", r.node(), r.workflow())
	}
	dry, err := r.s.ActOnWorkflow(t.Context(), store.WorkflowAct{WorkflowID: r.workflow().GetWorkflowId(), RequestID: "dry", Action: workflow.Cancel, DryRun: true}, now())
	if err != nil || dry.Text == "" || r.workflow().GetState() != baremetalv1.Workflow_RUNNING {
		t.Fatalf("a dry run says %+v (%v) and leaves %v", dry, err, r.workflow())
	}
	r.mustAct(workflow.Cancel, "cancel")
	r.mustAct(workflow.Cancel, "cancel again")
	if w := r.workflow(); w.GetState() != baremetalv1.Workflow_CANCELLED || r.node() != "ACTIVE" {
		t.Fatalf("the node is %s, the workflow %v", r.node(), w)
	}
	r.mustAct(workflow.Rerun, "rerun")
	if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.node() != "ACTIVE" {
		t.Errorf("the node is %s, the workflow %v", r.node(), w)
	}
	_, err = r.act(workflow.Cancel, "too late")
	wantReason(t, err, "WORKFLOW_ACTION_ILLEGAL")
}

// TestAStalledAttemptIsLookedAtAgain: resume finds the operation that nobody looks at and wakes it.
func TestAStalledAttemptIsLookedAtAgain(t *testing.T) {
	r := newLifeRig(t)
	r.start(workflow.Decommission, workflow.SoftReset)
	r.decide(r.workflow().GetOperationId(), operation.Look{})
	if a := r.mustAct(workflow.Resume, "early"); a.Created {
		t.Error("a live attempt got a second one")
	}
	exec(t, r.s, "UPDATE operations SET wake_at = now() - interval '10 minutes' WHERE type = 'DECOMMISSION'")
	if a := r.mustAct(workflow.Resume, "late"); a.Created {
		t.Error("a late attempt got a second one")
	}
	if n := count(t, r.s, "SELECT count(*) FROM operations WHERE type = 'DECOMMISSION' AND wake_at > now() - interval '1 minute'"); n != 1 {
		t.Error("nobody will look at it")
	}
}

// TestOnboarding adopts a machine that was given a token: it is active when its agent is there, and not before it is
// verified.
func TestOnboarding(t *testing.T) {
	for _, crash := range crashPoints {
		t.Run("crash="+crash, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			r := &lifeRig{T: t, s: s, boot: "boot-1"}
			register(t, s, "m-1", lifeMAC)
			lease(t, s)
			token(t, s, store.NewToken{TokenID: "t-0", MachineID: "m-1"})
			maintenance(t, s, "m-1")
			r.start(workflow.Onboarding, workflow.NoMode)
			op := r.workflow().GetOperationId()
			r.crash = crash
			r.decide(op, operation.Look{})
			if w := r.workflow(); w.GetState() != baremetalv1.Workflow_RUNNING || w.GetCurrentStage() != workflow.WaitForEnrollment || r.node() != "ENROLLING" {
				t.Fatalf("the node is %s, the workflow %v", r.node(), w)
			}
			r.agent = enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
			for _, id := range r.open() {
				r.decide(id, operation.SessionOpened{AgentID: r.agent.id, StateID: "st-1", BootID: r.boot, OfTarget: true})
			}
			if w := r.workflow(); w.GetState() != baremetalv1.Workflow_RUNNING || w.GetCurrentStage() != workflow.VerifyNode {
				t.Errorf("without an inventory the workflow is %v", w)
			}
			r.agent.arrived(t, s, lifeMAC)
			r.decide(op, operation.Look{})
			if w := r.workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.node() != "ACTIVE" {
				t.Errorf("the node is %s, the workflow %v", r.node(), w)
			}
			if bad := r.violation(); bad != "" {
				t.Error(bad)
			}
		})
	}
}
