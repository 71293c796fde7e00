package why

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func situationsOfWork() []situation {
	waiting := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		s.cutOff(t)
		rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime)
		return s
	}
	// sent is a machine whose agent has fallen silent with a command without a grant.
	sent := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		rig.IsolateAt(s.of, "agent.before-grant-request")
		rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime)
		r.WaitCommand(s.machine, "acknowledged", func(c *baremetalv1.Command) bool {
			return c.GetState() == "ACKED" ||
				c.GetState() == "SENT"
		})
		r.silent(t, s.machine)
		return s
	}
	silentGrant := func(t *testing.T, r *whyRig) subject {
		s := simulated(t, r, harness.MachineOptions{})
		rig.IsolateAt(s.of, "agent.after-intent")
		harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: s.machine, RequestId: "r",
			TimeoutSeconds: rig.PatientTime})
		r.silent(t, s.machine)
		return s
	}
	return []situation{
		{name: "a reboot waits for its agent", rule: "agent", arrange: waiting},
		{name: "an agent falls silent with its command", rule: "executor-gone",
			arrange: func(t *testing.T, r *whyRig) subject {
				return sent(t, r)
			}},
		{name: "work is under way, and the node is quarantined by an admin", rule: "quarantined",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := sent(t, r)
				s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
				return s
			}},
		{name: "an agent falls silent with leave to act", rule: "granted-and-silent", arrange: silentGrant},
		{name: "a cancel waits for a silent agent", rule: "cancelling", arrange: func(t *testing.T, r *whyRig) subject {
			s := silentGrant(t, r)
			harness.Must(t, r.Machines().CancelOperation,
				&baremetalv1.CancelOperationRequest{OperationId: r.Machine(s.machine).GetStatus().GetActiveOperationId()})
			return s
		}},
		{name: "an image is being written", rule: "executing", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{RepaveTime: time.Minute})
			s.reimage(t, rig.PatientTime)
			return s
		}},
		{name: "a reconfiguration waits for its next try", rule: "retry", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			plan, step := "again-"+s.machine, rename()
			step.Name, step.MaxRetries, step.TimeoutSeconds = "rename", 10, rig.PatientTime
			harness.Must(t, baremetalv1.NewPlanServiceClient(r.Conn()).CreatePlan,
				&baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
					PlanId: plan, Steps: []*baremetalv1.Step{step},
				}})
			harness.Must(t, baremetalv1.NewRunServiceClient(r.Conn()).StartRun,
				&baremetalv1.StartRunRequest{MachineId: s.machine, RequestId: "r", PlanId: plan})
			return s
		}},
		{name: "nobody can take a reboot", rule: "nobody", arrange: func(t *testing.T, r *whyRig) subject {
			s := subject{r: r, machine: r.Register(&baremetalv1.Machine{}).GetMachineId()}
			rig.Maintenance(t, r.Client, s.machine)
			rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime)
			return s
		}},
		{name: "hardware is being replaced", short: true, rule: "replacement", arrange: replaced},
		{name: "hardware is being replaced, and the node is quarantined by an admin", rule: "quarantined",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := replaced(t, r)
				s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
				return s
			}},
	}
}

// replaced is a machine whose hardware is being replaced.
func replaced(t *testing.T, r *whyRig) subject {
	t.Helper()
	s := inService(t, r)
	maintenanceAgain(t, s)
	s.transition(t, baremetalv1.NodeState_NODE_STATE_MIGRATING)
	return s
}

// maintenanceAgain takes a machine that was in service out of it.
func maintenanceAgain(t *testing.T, s subject) {
	t.Helper()
	op := harness.Must(t, s.r.Machines().EnterMaintenance,
		&baremetalv1.EnterMaintenanceRequest{MachineId: s.machine, RequestId: "again"})
	rig.Ended(t, s.r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
}

var bmcs atomic.Uint32

// ownBMC returns the address of a BMC that no other machine has, at which nothing answers (RFC 2544).
func ownBMC() string {
	n := bmcs.Add(1)
	return fmt.Sprintf("198.18.%d.%d", n>>8, n&0xff)
}

func situationsOfLife() []situation {
	// At a site without an agent: a site agent would find the BMC in trouble, and that would be the answer.
	registered := func(r *whyRig, mac string) string {
		return r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
			Site: "unserved", MacAddresses: []string{mac}, BmcEndpoint: ownBMC(),
		}}).GetMachineId()
	}
	return []situation{
		{name: "discovered", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			return subject{machine: registered(r, macOf(t.Name()))}
		}},
		{name: "given a token", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			id := registered(r, macOf(t.Name()))
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			return subject{machine: id}
		}},
		{name: "approved", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			s := subject{r: r, machine: registered(r, macOf(t.Name()))}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			return s
		}},
		{name: "installed", rule: "life", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			s.reports(t, mac, "started", "complete")
			return s
		}},
		{name: "installing by itself", rule: "reported-install", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
			s.reports(t, mac, "started")
			return s
		}},
		{name: "installing by itself, and quarantined by an admin", short: true, rule: "quarantined",
			arrange: func(t *testing.T, r *whyRig) subject {
				mac := macOf(t.Name())
				s := subject{r: r, machine: registered(r, mac)}
				s.transition(t, baremetalv1.NodeState_NODE_STATE_PENDING)
				s.reports(t, mac, "started")
				s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
				return s
			}},
		{name: "metal, and no image in the catalogue", rule: "life", arrange: func(t *testing.T, _ *whyRig) subject {
			r := ownRig(t)
			s := subject{r: r, machine: registered(r, macOf(t.Name()))}
			rig.Maintenance(t, r.Client, s.machine)
			return s
		}},
		{name: "three installations failed", rule: "install-failed", arrange: func(t *testing.T, r *whyRig) subject {
			mac := macOf(t.Name())
			s := subject{r: r, machine: registered(r, mac)}
			s.r.installFails(t, s.machine, mac)
			return s
		}},
		{name: "retired while its image was being written", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{RepaveTime: 40 * time.Second})
			op := s.reimage(t, rig.PatientTime)
			r.WaitCommand(s.machine, "a granted write", func(c *baremetalv1.Command) bool {
				return c.GetKind() == "repave" &&
					c.GetState() == "GRANTED"
			})
			s.transition(t, baremetalv1.NodeState_NODE_STATE_RETIRED)
			rig.Ended(t, r.Wait(op, rig.Soon), rig.Canceled, "CANCELED_BY_REQUEST")
			return s
		}},
		{name: "retired", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.transition(t, baremetalv1.NodeState_NODE_STATE_RETIRED)
			return s
		}},
	}
}

func (s subject) reports(t *testing.T, mac string, statuses ...string) {
	t.Helper()
	for _, status := range statuses {
		harness.Must(t, s.r.Nodes().ReportNode, &baremetalv1.ReportNodeRequest{MacAddress: mac, InstallationStatus: status})
	}
}

// neverCame is a machine whose onboarding has waited for an agent in vain.
func neverCame(t *testing.T, r *whyRig) subject {
	t.Helper()
	id := r.Register(&baremetalv1.Machine{}).GetMachineId()
	r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
	r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, map[string]string{"path": "adopt", "timeout_seconds": "1"})
	r.failedLife(t, id)
	return subject{r: r, machine: id}
}

func situationsOfWorkflows() []situation {
	full := baremetalv1.Workflow_FULL_DECOMMISSION
	// leaving is a machine whose decommission fails.
	leaving := func(t *testing.T, r *whyRig, script string, mode baremetalv1.Workflow_Mode) subject {
		m := r.NewMachine(t, harness.MachineOptions{Script: script})
		m.WaitConnected()
		r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, mode, timeout("2"))
		r.failedLife(t, m.ID)
		return subject{r: r, machine: m.ID, of: m}
	}
	act := func(t *testing.T, s subject, action baremetalv1.WorkflowAction) {
		t.Helper()
		w := harness.Must(t, s.r.Workflows().ListWorkflows,
			&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + s.machine}).GetWorkflows()[0]
		harness.Must(t, s.r.Workflows().ActOnWorkflow, &baremetalv1.ActOnWorkflowRequest{WorkflowId: w.GetWorkflowId(),
			RequestId: action.String(), Action: action})
	}
	return []situation{
		{name: "an erasure failed", short: true, rule: "workflow",
			arrange: func(t *testing.T, r *whyRig) subject { return leaving(t, r, "erase:fail-before", full) }},
		{name: "a soft reset has no known outcome", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			return leaving(t, r, "reboot:lie", baremetalv1.Workflow_SOFT_RESET)
		}},
		{name: "the disks may not be erased", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			m := r.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			harness.Must(t, r.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: m.ID, Spec: &baremetalv1.MachineSpec{ProtectedDisks: []string{"size>=1GiB"}},
			}})
			r.startLife(t, m.ID, baremetalv1.Workflow_DECOMMISSION, full, nil)
			r.failedLife(t, m.ID)
			return subject{machine: m.ID, of: m}
		}},
		{name: "the agent of an onboarding never came", rule: "workflow", arrange: neverCame},
		{name: "an onboarding waits for its agent", rule: "agent", arrange: func(t *testing.T, r *whyRig) subject {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			r.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: id})
			r.startLife(t, id, baremetalv1.Workflow_ONBOARDING, 0, map[string]string{"path": "adopt", "timeout_seconds": "600"})
			return subject{machine: id}
		}},
		{name: "a workflow was frozen", rule: "workflow", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			act(t, s, baremetalv1.WorkflowAction_WORKFLOW_ACTION_MARK_MANUAL_INTERVENTION_REQUIRED)
			return s
		}},
		{name: "a workflow was cancelled", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s := leaving(t, r, "erase:fail-before", full)
			act(t, s, baremetalv1.WorkflowAction_WORKFLOW_ACTION_CANCEL)
			return s
		}},
		{name: "a workflow failed, and a clone was seen", rule: "quarantined",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := leaving(t, r, "erase:fail-before", full)
				s.cloned(t)
				return s
			}},
		{name: "an onboarding failed, and the node was quarantined by an admin", rule: "quarantined",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := neverCame(t, r)
				s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
				return s
			}},
		{name: "a workflow failed, and the machine was flagged", rule: "blocked",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := leaving(t, r, "erase:fail-before", full)
				s.flag(t, "RMA")
				return s
			}},
	}
}
