package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func situationsOfRest() []situation {
	return []situation{
		{name: "registered", short: true, rule: "never-enrolled", arrange: func(t *testing.T, r *whyRig) subject {
			return subject{machine: r.Register(&baremetalv1.Machine{}).GetMachineId()}
		}},
		{name: "new, with its agent", rule: "new", arrange: func(t *testing.T, r *whyRig) subject {
			m := r.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			return subject{machine: m.ID, of: m}
		}},
		{name: "a MAC address typed wrong", rule: "health-checks", arrange: func(t *testing.T, r *whyRig) subject {
			m := mistyped(t, r.Cluster, fmt.Sprintf("52:54:00:9a:00:%02x", typedWrong.Add(1)))
			return subject{machine: m.ID, of: m}
		}},
		{name: "in maintenance", rule: "maintenance",
			arrange: func(t *testing.T, r *whyRig) subject { return simulated(t, r, harness.MachineOptions{}) }},
		{name: "in service", rule: "idle", arrange: inService},
		{name: "erased, and put back into service", short: true, rule: "unusable",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := simulated(t, r, harness.MachineOptions{})
				rig.Ended(t,
					r.Wait(r.runOnce(t, s.machine,
						&baremetalv1.Step{Kind: &baremetalv1.Step_Erase{Erase: &baremetalv1.EraseDisks{}}}).GetOperationId(), rig.Soon),
					rig.Succeeded, "")
				s.leave(t)
				return s
			}},
		{name: "flagged for return", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.flag(t, "RMA")
			return s
		}},
		{name: "flagged as retired", rule: "blocked", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.flag(t, "Retired")
			return s
		}},
		{name: "quarantined for a clone", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cloned(t)
			return s
		}},
		{name: "fenced", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject { s, _ := fenced(t, r); return s }},
		{name: "fenced, and quarantined by an admin", rule: "quarantined", arrange: func(t *testing.T, r *whyRig) subject {
			s, _ := fenced(t, r)
			s.transition(t, baremetalv1.NodeState_NODE_STATE_QUARANTINED)
			return s
		}},
		{name: "cut off, in service", rule: "agent-silent", arrange: func(t *testing.T, r *whyRig) subject {
			s := inService(t, r)
			s.cutOff(t)
			return s
		}},
		{name: "certificate revoked", rule: "agent-silent", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			harness.Must(t, r.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: s.of.Identity().AgentID,
				Reason: "stolen laptop"})
			r.silent(t, s.machine)
			return s
		}},
		{name: "cancelled before it began", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			op := rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime)
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
			s.of.Rejoin()
			s.of.WaitConnected()
			return s
		}},
		{name: "an operation that was cancelled", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			s.operation = rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime).GetOperationId()
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: s.operation})
			return s
		}},
		{name: "an operation that succeeded", rule: "succeeded", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.operation = rig.Reboot(t, r.Client, s.machine, "r", rig.PatientTime).GetOperationId()
			rig.Ended(t, r.Wait(s.operation, rig.Soon), rig.Succeeded, "")
			return s
		}},
		{name: "an operation that is fenced", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s, op := fenced(t, r)
			s.operation = op
			return s
		}},
		{name: "deleted", rule: "deleted", arrange: func(t *testing.T, r *whyRig) subject {
			id := r.Register(&baremetalv1.Machine{}).GetMachineId()
			harness.Must(t, r.Machines().DeleteMachine, &baremetalv1.DeleteMachineRequest{MachineId: id})
			return subject{machine: id}
		}},
	}
}

func situationsOfFailure() []situation {
	return []situation{
		{name: "a reconfiguration failed", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			return s.fails(t, r.runOnce(t, s.machine, rename()).GetOperationId())
		}},
		{name: "a reconfiguration failed in service", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "hostname:fail-before"})
			s.leave(t)
			return s.fails(t, r.runOnce(t, s.machine, rename()).GetOperationId())
		}},
		{name: "a reboot that only claims", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "reboot:lie"})
			return s.fails(t, rig.Reboot(t, r.Client, s.machine, "r", 2).GetOperationId())
		}},
		{name: "a reboot that nobody took", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.cutOff(t)
			return s.fails(t, rig.Reboot(t, r.Client, s.machine, "r", 1).GetOperationId())
		}},
		{name: "a reimage failed", rule: "install-failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			return s.fails(t, s.reimage(t, rig.PatientTime))
		}},
		{name: "a reimage failed, and the machine is put back into service", rule: "install-failed",
			arrange: func(t *testing.T, r *whyRig) subject {
				s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
				s.fails(t, s.reimage(t, rig.PatientTime))
				s.leave(t)
				return s
			}},
		{name: "the operation of a reimage that failed", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{Script: "repave:fail-before"})
			s.operation = s.reimage(t, rig.PatientTime)
			return s.fails(t, s.operation)
		}},
		{name: "the agent was locked", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			s.lock(t)
			return s.fails(t, rig.Reboot(t, r.Client, s.machine, "r", 2).GetOperationId())
		}},
		{name: "a network change that was rolled back", rule: "failed", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			rig.IsolateAt(s.of, "agent.after-effect")
			op := r.runOnce(t, s.machine, &baremetalv1.Step{Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{
				ConfirmTimeoutSeconds: 2,
				Interfaces:            []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}},
			}}})
			testkit.Eventually(t, rig.Soon, func() bool {
				return slices.ContainsFunc(s.of.Journal(),
					func(e sim.EffectRecord) bool { return strings.HasSuffix(e.CommandID, "-rollback") })
			}, "no way back")
			s.of.Rejoin()
			return s.fails(t, op.GetOperationId())
		}},
		{name: "a write whose outcome nobody knows", rule: "fenced", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{})
			rig.IsolateAt(s.of, "agent.after-intent")
			return s.fails(t, s.reimage(t, 2))
		}},
		{name: "a cancelled write", rule: "canceled", arrange: func(t *testing.T, r *whyRig) subject {
			s := simulated(t, r, harness.MachineOptions{RepaveTime: 40 * time.Second})
			op := s.reimage(t, rig.PatientTime)
			r.WaitCommand(s.machine, "a granted write", func(c *baremetalv1.Command) bool {
				return c.GetKind() == "repave" &&
					c.GetState() == "GRANTED"
			})
			harness.Must(t, r.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op})
			rig.Ended(t, r.Wait(op, rig.Soon), rig.Canceled, "CANCELED_BY_REQUEST")
			return s
		}},
	}
}

// lock locks the agent at the machine.
func (s subject) lock(t *testing.T) {
	t.Helper()
	if out, err := agentCommand(t, s.of, "lock", "--reason", "disk swap"); err != nil {
		t.Fatalf("lock: %v: %s", err, out)
	}
}
