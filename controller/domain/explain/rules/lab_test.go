package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	hostID, siteID, instID = "a-host", "a-site", "a-inst"
	mac                    = "52:54:00:12:34:56"
	bmcAddress             = "10.20.0.9"
	digest                 = "sha256:5eed"
)

// lab is a machine, its site and one operation. What happens to the operation is decided by the rules of the engine, so
// that the explained records are as they are really stored.
type lab struct {
	*testing.T
	now     time.Time
	f       explain.Facts
	asked   map[string]uint64
	phase   fleet.Phase
	fenced  string
	revised int64
	target  struct {
		boot, agent string
	}
	// agentless reimages write a system without an agent.
	agentless bool
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, now: t0, asked: map[string]uint64{}, phase: fleet.Maintenance}
	l.f = explain.Facts{
		Machine: &baremetalv1.Machine{
			MachineId: "m-1", CreatedAt: timestamppb.New(t0.Add(-time.Hour)), UpdatedAt: timestamppb.New(t0),
			Spec: &baremetalv1.MachineSpec{
				Provider: "agent", Site: "berlin", MacAddresses: []string{mac}, BmcEndpoint: bmcAddress,
				BmcCredentialsRef: "rack-42", InstallDisk: "serial=QM1",
			},
			Status: &baremetalv1.MachineStatus{Phase: baremetalv1.MachineStatus_MAINTENANCE,
				NodeState: baremetalv1.NodeState_NODE_STATE_ACTIVE},
		},
		Site: &explain.Site{Name: "berlin", Revision: 7, Applied: 7, AppliedAt: t0.Add(-time.Hour),
			Segments: []explain.Segment{{
				Name: "prov", Mode: "dhcp", State: "up", PoolSize: 100, PoolUsed: 3, LeaseTime: time.Hour,
			}}},
		Boot: explain.Boot{Mode: operation.BootDisk}, InstallerReady: true,
	}
	l.revised = 7
	l.agent(siteID, "site", "netboot", "power", "provider:agent", "reboot")
	return l
}

// agent connects an agent.
func (l *lab) agent(id, role string, capabilities ...string) *explain.Agent {
	a := explain.Agent{Candidate: fleet.Candidate{
		AgentID: id, Role: role, StateID: "s-" + id, BootID: "boot-" + id, Live: true, LastSeen: l.now,
		Capabilities: capabilities,
	}, CertExpires: t0.Add(24 * time.Hour)}
	if role == "host" {
		l.target.boot, l.target.agent = a.BootID, id
		l.f.Machine.Status.AgentId = id
	}
	if role == "installer" {
		a.OperationID = l.f.Op.ID
		l.f.Boot.InstallerAgentID = id
	}
	l.f.Agents = append(l.f.Agents, a)
	return &l.f.Agents[len(l.f.Agents)-1]
}

func (l *lab) host() *lab {
	l.agent(hostID, "host", "reboot", "reconfig")
	return l
}

func (l *lab) withoutSite() *lab {
	l.f.Agents = nil
	return l
}

// gone takes an agent's session away.
func (l *lab) gone(id string) *lab {
	a := l.find(id)
	a.Live, a.Ended = false, l.now
	return l
}

func (l *lab) find(id string) *explain.Agent {
	l.Helper()
	for i := range l.f.Agents {
		if l.f.Agents[i].AgentID == id {
			return &l.f.Agents[i]
		}
	}
	l.Fatalf("there is no agent %s", id)
	return nil
}

func (l *lab) start(k fleet.OperationType, steps ...operation.Step) *lab {
	for i := range steps {
		steps[i].State = operation.StepWaiting
		steps[i].Name = map[kind.Kind]string{kind.Netboot: "set-netboot",
			kind.Repave: "repave-os"}[steps[i].Kind]
		if steps[i].Name == "" {
			steps[i].Name = string(steps[i].Kind)
		}
		if steps[i].Timeout == 0 {
			steps[i].Timeout = 10 * time.Minute
		}
	}
	l.f.Op = &operation.Operation{
		ID: "op-1", MachineID: "m-1", Type: k, Phase: operation.Pending, WakeAt: l.now, Version: 1, CreatedAt: l.now,
		Steps:        steps,
		CurrentStage: steps[0].Name,
	}
	l.f.PlanID, l.f.Params = "repave", map[string]string{"image_ref": "debian-12"}
	l.f.Machine.Status.ActiveOperationId = "op-1"
	return l
}

func (l *lab) reimage() *lab {
	return l.start(fleet.Reimage, operation.Step{Kind: kind.Netboot, MaxRetries: 2},
		operation.Step{Kind: kind.Repave, MaxRetries: 2, Agentless: l.agentless},
		operation.Step{Kind: kind.Reboot, MaxRetries: 2})
}

// withoutAgent lets the next reimage write a system without an agent.
func (l *lab) withoutAgent() *lab {
	l.agentless = true
	return l
}

func (l *lab) reboot() *lab {
	return l.start(fleet.Reboot, operation.Step{Kind: kind.Reboot, MaxRetries: 2})
}

func (l *lab) rebootBMC() *lab {
	return l.start(fleet.Reboot, operation.Step{Kind: kind.Reboot, MaxRetries: 2, Mode: "bmc"})
}

func (l *lab) reconfigure() *lab {
	return l.start(fleet.Reconfigure, operation.Step{Kind: kind.Net})
}

func (l *lab) latest() *operation.Command {
	if n := len(l.f.Commands); n > 0 {
		return &l.f.Commands[n-1]
	}
	return nil
}

// do brings an event to the operation and stores the answer, as the store does.
func (l *lab) do(e operation.Event) operation.Decision {
	l.Helper()
	d := decider.Decide(l.snapshot(), e, l.now)
	if d.OpChanged {
		op := d.Op
		op.Version++
		l.f.Op = &op
	}
	for _, c := range d.Commands {
		if c == d.NewCommand {
			c.Digest = []byte(c.ID)
			l.f.Commands = append(l.f.Commands, *c)
			continue
		}
		for i := range l.f.Commands {
			if l.f.Commands[i].ID == c.ID {
				l.f.Commands[i] = *c
			}
		}
	}
	l.machine(d.Machine)
	return d
}

func (l *lab) machine(m operation.MachineChange) {
	st := l.f.Machine.Status
	if m.ClearCurrent {
		st.ActiveOperationId = ""
	}
	if m.Fence != "" {
		l.fenced, st.UnresolvedCommandId = m.Fence, m.Fence
	}
	if m.Unfence != "" {
		l.fenced, st.UnresolvedCommandId = "", ""
	}
	if a := m.Assign; a != nil {
		l.revised++
		l.f.Site.Revision = l.revised
		l.f.Boot = explain.Boot{Mode: a.Mode, OperationID: a.OperationID, Revision: l.revised, UpdatedAt: l.now}
	}
	for _, c := range m.Conditions {
		l.condition(c.Type, c.Status, c.Reason, c.Message)
	}
	if len(m.Happened.Cures) > 0 {
		l.condition(fleet.NeedsIntervention, false, "OperationSucceeded", "")
	}
	if r := m.Raise; r != nil {
		l.condition(fleet.NeedsIntervention, true, r.Reason, r.Message)
	}
}

func (l *lab) condition(t fleet.ConditionType, status bool, reason, message string) *lab {
	c := &baremetalv1.Condition{Type: string(t), Status: status, Reason: reason, Message: message,
		LastTransition: timestamppb.New(l.now), Known: true}
	for i, have := range l.f.Machine.Status.Conditions {
		if have.GetType() == string(t) {
			l.f.Machine.Status.Conditions[i] = c
			return l
		}
	}
	l.f.Machine.Status.Conditions = append(l.f.Machine.Status.Conditions, c)
	return l
}

// unobserved has the site fall silent, which alone observed a machine without an agent.
func (l *lab) unobserved() *lab {
	l.f.Site.SilentSince = l.now.Add(-time.Minute)
	l.f.Machine.Status.Conditions = append(l.f.Machine.Status.Conditions, &baremetalv1.Condition{
		Type: string(fleet.Reachable), Reason: "SITE_AGENT_SILENT", LastTransition: timestamppb.New(l.now),
		ObservedAt: timestamppb.New(l.f.Site.SilentSince), ObservedBy: siteID,
	})
	return l
}

func (l *lab) snapshot() operation.Snapshot {
	s := operation.Snapshot{Op: *l.f.Op, World: operation.World{
		Machine: fleet.Facts{Phase: l.phase, NodeState: fleet.Active, Conditions: map[fleet.ConditionType]bool{},
			Freeze: l.f.Freeze},
		Provider: l.f.Machine.Spec.Provider, TargetBootID: l.target.boot, TargetAgentID: l.target.agent,
		NewCommandID: fmt.Sprintf("cmd-%d", len(l.f.Commands)+1), NewBootToken: "token",
		Boot: operation.Boot{
			Mode: l.f.Boot.Mode, OperationID: l.f.Boot.OperationID, Revision: l.f.Boot.Revision, Applied: l.f.Site.Applied,
			InstallerAgentID: l.f.Boot.InstallerAgentID, Segments: len(l.f.Site.Segments), InstallerReady: l.f.InstallerReady,
		},
	}}
	for _, c := range l.f.Machine.Status.Conditions {
		s.World.Machine.Conditions[fleet.ConditionType(c.GetType())] = c.GetStatus()
	}
	if c := l.latest(); c != nil {
		copied := *c
		s.Command = &copied
	}
	for _, a := range l.f.Agents {
		if a.Role == "site" && l.f.Machine.Spec.Provider == "agent" && l.f.Machine.Spec.BmcEndpoint == "" {
			continue
		}
		s.World.Candidates = append(s.World.Candidates, a.Candidate)
		if a.AgentID == l.target.agent {
			s.World.TargetAgentLive = a.Live
		}
		if s.Command != nil && a.AgentID == s.Command.ExecutorID {
			s.World.ExecutorLive, s.World.ExecutorSilentFrom = a.Live, a.SilentFrom()
		}
	}
	return s
}

func (l *lab) look() *lab {
	l.do(operation.Evaluate{})
	return l
}

// applies makes the site's agent serve by the newest document.
func (l *lab) applies() *lab {
	l.f.Site.Applied, l.f.Site.AppliedAt = l.f.Site.Revision, l.now
	return l.look()
}

// after lets time pass; the controller looks whenever it is due, agents that are connected send heartbeats.
func (l *lab) after(d time.Duration) *lab {
	end := l.now.Add(d)
	for !operation.IsTerminal(l.f.Op.Phase) && !l.f.Op.WakeAt.After(end) {
		l.now = l.f.Op.WakeAt
		l.beat()
		before := l.f.Op.Version
		l.look()
		if l.f.Op.Version == before {
			break
		}
	}
	l.now = end
	l.beat()
	return l
}

func (l *lab) beat() {
	for i := range l.f.Agents {
		if l.f.Agents[i].Live {
			l.f.Agents[i].LastSeen = l.now
		}
	}
}

// grants asks for the grant of the latest command, and reports whether it was granted.
func (l *lab) grants() bool {
	l.Helper()
	c := l.latest()
	if c == nil {
		l.Fatalf("no command: %+v", l.f.Op)
	}
	l.asked[c.ExecutorID]++
	return l.do(operation.GrantAsked{
		CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, BootID: l.find(c.ExecutorID).BootID,
		Seq: l.asked[c.ExecutorID], Digest: c.Digest,
	}).Grant
}

func (l *lab) granted() *lab {
	l.Helper()
	if !l.grants() {
		l.Fatal("no grant")
	}
	return l
}

func (l *lab) says(outcome operation.Outcome, reason, message string, retry bool) *lab {
	c := l.latest()
	e := operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: outcome,
		Reason: reason, Message: message, Retryable: retry}
	if outcome == operation.OutcomeSucceeded {
		e.Evidence = map[string]string{evidence.ImageDigest: digest, evidence.ConfigDigest: "c"}
	}
	l.do(e)
	return l
}

func (l *lab) fails(reason, message string) *lab {
	return l.says(operation.OutcomeFailed, reason, message, false)
}

// refused lets an agent report a refused grant, in the form that agents do.
func (l *lab) refused(reason, message string) *lab {
	return l.says(operation.OutcomeRefused, "GRANT_REFUSED", reason+": "+message, false)
}

// poweredOn is a reimage whose machine was switched on through its BMC.
func (l *lab) poweredOn() *lab {
	l.reimage().look().applies().granted()
	l.now = l.now.Add(8 * time.Second)
	l.beat()
	l.says(operation.OutcomeSucceeded, "", "", false)
	if l.f.Op.WaitReason != operation.WaitInstaller {
		l.Fatalf("it waits for %q: %+v", l.f.Op.WaitReason, l.f.Op)
	}
	return l
}

// installing is a reimage whose installer was granted the write.
func (l *lab) installing() *lab {
	l.poweredOn()
	a := l.agent(instID, "installer", "repave", "erase", "reboot", "agentless")
	l.target.boot = a.BootID
	l.do(operation.SessionOpened{AgentID: instID, StateID: a.StateID, BootID: a.BootID, Installer: true})
	return l.granted()
}

// written is installing with the disk written, and the site serving the disk.
func (l *lab) written() *lab {
	return l.installing().says(operation.OutcomeSucceeded, "", "", false).applies()
}

func (l *lab) explain() explain.Explanation {
	l.f.Now = l.now
	l.f.Unresolved = nil
	for i := range l.f.Commands {
		if l.f.Commands[i].ID == l.fenced {
			l.f.Unresolved, l.f.UnresolvedOp = &l.f.Commands[i], l.f.Op.ID
		}
	}
	l.offer()
	return rules.Explain(l.f)
}

// offer sets the starts that the calls would accept, as far as the rules that need no database decide.
func (l *lab) offer() {
	if l.f.Machine == nil {
		return
	}
	st := l.f.Machine.GetStatus()
	f := fleet.Facts{
		Phase: fleet.Phase(st.GetPhase().String()), NodeState: fleet.NodeState(node.Name(st.GetNodeState())),
		Conditions:      map[fleet.ConditionType]bool{},
		ActiveOperation: st.GetActiveOperationId() != "", UnresolvedCommand: st.GetUnresolvedCommandId(),
		Deleted: l.f.Machine.GetDeletedAt() != nil, Freeze: l.f.Freeze,
	}
	for _, c := range st.GetConditions() {
		f.Conditions[fleet.ConditionType(c.GetType())] = c.GetStatus()
	}
	l.f.Offers = explain.Offers{Starts: map[explain.Start]*fleet.Refusal{},
		Restarts: st.GetNodeState() == node.InstallFailed, Clears: true}
	starts := explain.Starts()
	for _, c := range l.f.Causes {
		starts = append(starts, explain.Start{Type: fleet.RunPlan, Plan: c.Subject})
	}
	for _, s := range starts {
		l.f.Offers.Starts[s] = fleet.Admit(f, s.Type, s.Type == fleet.Reimage)
	}
	for _, to := range node.Targets(st.GetNodeState(), node.Admin) {
		if t, _ := node.Find(st.GetNodeState(), to, node.Admin); !t.Work {
			l.f.Offers.Moves = append(l.f.Offers.Moves, to)
		}
	}
	if w := l.f.Workflow; w != nil {
		stalled := workflow.Working(w.State)
		l.f.Offers.Workflow = workflow.Offer{Stalled: stalled, Legal: workflow.Legal(w.State, stalled)}
	}
}

// everything returns all texts of an explanation, for a search.
func everything(e explain.Explanation) string {
	return strings.Join(append([]string{e.Summary, e.Cause.Text, e.WaitsFor}, e.Cause.Facts...), "\n")
}

// withoutSiteOnly takes the site's agent away and leaves the others.
func (l *lab) withoutSiteOnly() *lab {
	for i := range l.f.Agents {
		if l.f.Agents[i].Role == "site" {
			l.f.Agents = append(l.f.Agents[:i:i], l.f.Agents[i+1:]...)
			return l
		}
	}
	return l
}

func (l *lab) quarantine(reason, message string) *lab {
	l.f.Machine.Status.NodeState, l.f.Machine.Status.NodeStateChangedAt = baremetalv1.NodeState_NODE_STATE_QUARANTINED,
		timestamppb.New(l.now)
	return l.condition(fleet.NeedsIntervention, true, reason, message)
}

// ssh is an operation whose script the site's agent was granted.
func (l *lab) ssh() *lab {
	l.f.Machine.Spec.SshEndpoint = "10.20.0.50:22"
	l.start(fleet.RunPlan, operation.Step{Kind: "ssh", MaxRetries: 1})
	end := l.now.Add(10 * time.Minute)
	l.f.Op.Phase, l.f.Op.WaitReason, l.f.Op.WakeAt, l.f.Op.StartedAt = operation.Running, operation.WaitResult, end, l.now
	l.f.Op.Steps[0].State, l.f.Op.Steps[0].StartedAt = operation.StepRunning, l.now
	l.f.Commands = []operation.Command{{
		ID: "cmd-1", Attempt: 1, Kind: "ssh", State: operation.Granted, ExecutorID: siteID, ExecutorRole: "site",
		ExecutorStateID: "s-" + siteID,
		Deadline:        end, SentAt: l.now, AckedAt: l.now, GrantedAt: l.now,
	}}
	return l
}

// stage is an operation of a workflow that checks one of its stages.
func (l *lab) stage() *lab {
	l.start(fleet.Onboard, operation.Step{Kind: kind.WorkflowStage, Mode: "verify_boot"})
	l.f.Op.Phase, l.f.Op.WaitReason, l.f.Op.WakeAt, l.f.Op.StartedAt = operation.Running, operation.WaitAgent,
		l.now.Add(5*time.Minute), l.now
	l.f.Op.Steps[0].State, l.f.Op.Steps[0].StartedAt = operation.StepRunning, l.now
	return l
}

// lone is an operation in which the controller waits for another party, while the node is in a state of work.
func (l *lab) lone(mode string, state baremetalv1.NodeState) *lab {
	l.host().start(fleet.NodeTransition, operation.Step{Kind: kind.WorkflowStage, Mode: mode, Timeout: time.Hour}).look()
	l.f.Machine.Status.NodeState = state
	return l
}
