package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

const LifeMAC = "52:54:00:aa:00:01"

// LifeRig is a machine that is in service, with a simulated agent that can do everything by itself.
type LifeRig struct {
	T     *testing.T
	Store *store.Store
	Agent Enrolled
	Epoch int64
	seq   uint64
	Boot  string
	// Crash is the failpoint at which the controller dies the first time that it decides on each event.
	Crash   string
	Crashes int
	// AgentDies opens the agent's session anew before each of its answers.
	AgentDies bool
	// FailWith gives another result than success, once, for commands of a kind.
	FailWith map[string]operation.Resulted
}

func NewLifeRig(t *testing.T) *LifeRig {
	t.Helper()
	return NewLifeRigOn(t, New(t))
}

// NewLifeRigOn is NewLifeRig over a store.
func NewLifeRigOn(t *testing.T, s *store.Store) *LifeRig {
	t.Helper()
	r := &LifeRig{T: t, Store: s, Boot: "boot-1"}
	Register(t, s, "m-1", LifeMAC)
	r.Agent = Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	Lease(t, s)
	r.Open()
	r.Agent.Arrived(t, s, LifeMAC)
	Maintenance(t, s, "m-1")
	if got := r.Node(); got != "ACTIVE" {
		t.Fatalf("the node is %s", got)
	}
	return r
}

func (r *LifeRig) Open() []string {
	r.T.Helper()
	h := r.Agent.Hello("st-1", r.Boot)
	h.Capabilities = []string{"reboot", "netboot", "repave", "erase", "reconfig", "reset_devices"}
	h.Simulated, h.LastGrantSeq = true, r.seq
	r.Epoch++
	return Open(r.T, r.Store, h).Operations
}

func (r *LifeRig) Node() string {
	r.T.Helper()
	return strings.TrimPrefix(Machine(r.T, r.Store, "m-1").GetStatus().GetNodeState().String(), "NODE_STATE_")
}

func (r *LifeRig) Start(k workflow.Kind, m workflow.Mode) *baremetalv1.Workflow {
	r.T.Helper()
	err := Each(r.T, r.Store, func() error {
		_, _, err := r.Store.Workflows.StartWorkflow(r.T.Context(), workflowstore.WorkflowStart{
			MachineID: "m-1", RequestID: "life", Kind: k, Mode: m, Actor: "tester", Inputs: Inputs("img"),
		}, Now())
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return r.Workflow()
}

// Workflow is the newest one of the machine.
func (r *LifeRig) Workflow() *baremetalv1.Workflow {
	r.T.Helper()
	all, err := r.Store.Workflows.ListWorkflows(r.T.Context(), workflowstore.WorkflowFilter{MachineID: "m-1", Limit: 10})
	if err != nil || len(all) == 0 {
		r.T.Fatalf("no workflow (%v)", err)
	}
	return all[0]
}

// Decide brings an event to an operation, over a crash of the controller, after which the event comes again.
func (r *LifeRig) Decide(op string, e operation.Event) *operationstore.Applied {
	r.T.Helper()
	if r.Crash != "" {
		scope := failpoint.NewScope()
		scope.Set(r.Crash, failpoint.Error().At(1))
		if _, err := r.Store.Operations.Decide(failpoint.With(r.T.Context(), scope), op, e, Now()); err == nil {
			r.T.Fatalf("no crash at %s", r.Crash)
		}
		r.Crashes++
		if g, asked := e.(operation.GrantAsked); asked {
			r.seq++
			g.Seq, g.Earlier = r.seq, AsksBefore(r.seq)
			e = g
		}
	}
	return Decide(r.T, r.Store, op, e)
}

// answers is what a healthy agent reads back.
func (r *LifeRig) answers(c *fleetv1.CommandSpec) map[string]string {
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
func (r *LifeRig) step(op string) bool {
	r.T.Helper()
	if r.AgentDies {
		for _, id := range r.Open() {
			Decide(r.T, r.Store, id, operation.SessionOpened{AgentID: r.Agent.ID, StateID: "st-1", BootID: r.Boot,
				OfTarget: true})
		}
	}
	out, err := r.Store.Sessions.Unsettled(r.T.Context(), r.Agent.ID)
	if err != nil {
		r.T.Fatal(err)
	}
	if len(out) == 0 {
		return false
	}
	spec := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(out[0].Spec, spec); err != nil {
		r.T.Fatal(err)
	}
	r.seq++
	g := operation.GrantAsked{CommandID: out[0].CommandID, AgentID: r.Agent.ID, StateID: "st-1", BootID: r.Boot,
		Seq: r.seq, Digest: out[0].Digest, Epoch: r.Epoch, Earlier: AsksBefore(r.seq)}
	if d := r.Decide(op, g); !d.Decision.Grant {
		r.T.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	result := operation.Resulted{CommandID: out[0].CommandID, AgentID: r.Agent.ID, StateID: "st-1",
		Outcome: operation.OutcomeSucceeded, Evidence: r.answers(spec)}
	if bad, ok := r.FailWith[kindOf(spec)]; ok {
		delete(r.FailWith, kindOf(spec))
		bad.CommandID, bad.AgentID, bad.StateID = result.CommandID, result.AgentID, result.StateID
		r.Decide(op, bad)
		return true
	}
	if kindOf(spec) == "reboot" {
		r.Boot = fmt.Sprintf("boot-%d", r.seq+100)
		r.Open()
		result.SessionBootID = r.Boot
	}
	r.Decide(op, result)
	return true
}

// Run works on the workflow's attempt until it ends or waits.
func (r *LifeRig) Run() *baremetalv1.Workflow {
	r.T.Helper()
	op := r.Workflow().GetOperationId()
	for range 100 {
		r.Decide(op, operation.Evaluate{})
		if violation := r.Violation(); violation != "" {
			r.T.Error(violation)
		}
		if r.Workflow().GetEndedAt() != nil || !r.step(op) {
			break
		}
	}
	return r.Workflow()
}

func (r *LifeRig) Violation() string {
	r.T.Helper()
	bad, err := r.Store.WorkflowStates.WorkflowViolations(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	if len(bad) == 0 {
		return ""
	}
	return bad[0].Text
}

func (r *LifeRig) Act(a workflow.Action, requestID string) (*workflowstore.Acted, error) {
	return r.Store.Workflows.ActOnWorkflow(r.T.Context(), workflowstore.WorkflowAct{
		WorkflowID: r.Workflow().GetWorkflowId(), RequestID: requestID, Action: a, Actor: "tester",
		Inputs: workflowstore.SameInputs(Inputs("img")),
	}, Now())
}

func (r *LifeRig) MustAct(a workflow.Action, requestID string) *workflowstore.Acted {
	r.T.Helper()
	out, err := r.Act(a, requestID)
	if err != nil {
		r.T.Fatalf("%s: %v", a, err)
	}
	return out
}

// commandsOf a mode: each at most once, whatever dies.
var commandsOf = map[workflow.Mode]string{
	workflow.SoftReset:        "reboot",
	workflow.Reimage:          "netboot,reboot,repave",
	workflow.StorageCleanup:   "erase,netboot,netboot,reboot,repave",
	workflow.FullDecommission: "erase,netboot",
}

func (r *LifeRig) Ended(w *baremetalv1.Workflow, mode workflow.Mode) {
	r.T.Helper()
	if w.GetState() != baremetalv1.Workflow_COMPLETED {
		r.T.Fatalf("it ended as %v", w)
	}
	list, err := r.Store.OperationQueries.ListCommands(r.T.Context(),
		operationquery.CommandFilter{OperationID: w.GetOperationId(), Limit: 1000})
	if err != nil {
		r.T.Fatal(err)
	}
	var kinds []string
	for _, c := range list {
		kinds = append(kinds, c.GetKind())
	}
	slices.Sort(kinds)
	if got := strings.Join(kinds, ","); got != commandsOf[mode] {
		r.T.Errorf("commands %s, want %s", got, commandsOf[mode])
	}
	Intact(r.T, r.Store, "m-1")
	m := Machine(r.T, r.Store, "m-1")
	if mode != workflow.FullDecommission {
		if r.Node() != "ACTIVE" || m.GetStatus().GetPhase() != baremetalv1.MachineStatus_MAINTENANCE {
			r.T.Errorf("the machine is %v", m.GetStatus())
		}
		return
	}
	if r.Node() != "DELETED" || m.GetDeletedAt() == nil {
		r.T.Errorf("the machine is %v", m.GetStatus())
	}
	if n := Count(r.T, r.Store, "SELECT count(*) FROM agent_certs WHERE revoked_at IS NULL"); n != 0 {
		r.T.Errorf("%d certificates live on", n)
	}
	for _, to := range []string{"draining", "retired", "removing", "deleted"} {
		if n := Count(r.T, r.Store, "SELECT count(*) FROM node_state_log WHERE to_state = $1 AND triggered_by = 'workflow'",
			to); n != 1 {
			r.T.Errorf("%d moves to %s", n, to)
		}
	}
	// The same hardware comes back as a new record, and the old identity never.
	Register(r.T, r.Store, "m-2", LifeMAC)
	_, err = r.Store.Machines.Register(r.T.Context(), &baremetalv1.Machine{MachineId: "m-1",
		Spec: &baremetalv1.MachineSpec{}}, "tester", Now())
	_ = WantReason(r.T, err, "MACHINE_DELETED")
}
