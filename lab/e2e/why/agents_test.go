package why

import (
	"os/exec"
	"testing"

	"github.com/ingot-metal/ingot/agent"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// faultsOfAgents: the program on the machine, and what connects it.
func faultsOfAgents() []injected {
	return []injected{
		{"machine cut off, nothing under way", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			m.Isolate()
			r.silent(t, m.ID)
			return m.ID
		}, []string{"AGENT_UNAVAILABLE"}, "agent", []string{"heard last"}},
		{"machine cut off before its reboot", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			m.Isolate()
			r.silent(t, m.ID)
			rig.Reboot(t, r.Client, m.ID, "r", rig.PatientTime)
			return m.ID
		}, []string{"AGENT_UNAVAILABLE"}, "agent", []string{"heard last"}},
		{"machine cut off with leave to act", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			rig.IsolateAt(m, "agent.after-intent")
			harness.Must(t, r.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: m.ID, RequestId: "r",
				TimeoutSeconds: rig.PatientTime})
			r.silent(t, m.ID)
			return m.ID
		}, []string{"OUTCOME_UNKNOWN"}, "agent", []string{"is unknown"}},
		{"machine cut off with leave to act, its time over", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			rig.IsolateAt(m, "agent.after-intent")
			op := harness.Must(t, r.Machines().NetbootMachine,
				&baremetalv1.NetbootMachineRequest{MachineId: m.ID, RequestId: "r", TimeoutSeconds: 4})
			r.failedOperation(t, op)
			return m.ID
		}, []string{"OUTCOME_UNKNOWN"}, "operator", []string{"cmd-"}},
		{"agent never installed", func(t *testing.T, r *whyRig) string {
			return r.Register(&baremetalv1.Machine{}).GetMachineId()
		}, []string{"AGENT_UNAVAILABLE"}, "operator", []string{"no agent"}},
		{"agent's certificate revoked", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			harness.Must(t, r.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: m.Identity().AgentID,
				Reason: "stolen laptop"})
			r.silent(t, m.ID)
			return m.ID
		}, []string{"CERTIFICATE_REVOKED"}, "operator", []string{"revoked"}},
		{"agent locked at the machine", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			out, err := exec.CommandContext(t.Context(), harness.Build(t).Agent, "lock", "--state-dir", m.StateDir, "--reason",
				"disk swap").CombinedOutput()
			if err != nil {
				t.Fatalf("lock: %v: %s", err, out)
			}
			r.failedOperation(t, rig.Reboot(t, r.Client, m.ID, "r", 6))
			return m.ID
		}, []string{"AGENT_LOCKED"}, "operator", []string{"locked"}},
		{"agent lost its memory while it acted", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			rig.AtPoint(m, "agent.after-intent", nil)
			op := rig.Reboot(t, r.Client, m.ID, "r", rig.PatientTime)
			if err := m.End(); err == nil {
				t.Fatal("the agent did not crash")
			}
			m.ForgetEverything()
			m.Start()
			r.failedOperation(t, op)
			return m.ID
		}, []string{"OUTCOME_UNKNOWN", "AGENT_MEMORY_LOST"}, "operator", []string{"memory"}},
		{"disk copied into other hardware", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{})
			dir := t.TempDir()
			m.CloneDir(dir)
			clone := r.NewMachine(t, harness.MachineOptions{Stopped: true, World: m.World, SimID: "other-hardware",
				Change: func(a *agent.Config) {
					a.StateDir = dir
				}})
			clone.Config.Bundle = ""
			clone.Start()
			testkit.Eventually(t, rig.Soon,
				func() bool { return rig.Condition(r.Machine(m.ID), "NeedsIntervention").GetStatus() },
				"no quarantine")
			return m.ID
		}, []string{"CLONE_DETECTED"}, "operator", []string{"different hardware"}},
		{"site agent cut off", func(t *testing.T, r *whyRig) string {
			m := r.at(t, harness.MachineOptions{Site: true})
			m.Isolate()
			testkit.Eventually(t, rig.Soon, func() bool {
				return !harness.Must(t, r.Admin().GetAgent,
					&baremetalv1.GetAgentRequest{AgentId: m.Identity().AgentID}).GetConnected()
			}, "the site's agent is still connected")
			rig.Reboot(t, r.Client, m.ID, "r", rig.PatientTime)
			return m.ID
		}, []string{"SITE_AGENT_SILENT"}, "agent", []string{"site-"}},
		{"site agent without the provider's adapter", func(t *testing.T, r *whyRig) string {
			id := r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{Provider: "fake",
				Site: whySite}}).GetMachineId()
			rig.Maintenance(t, r.Client, id)
			rig.Reboot(t, r.Client, id, "r", rig.PatientTime)
			return id
		}, []string{"CAPABILITY_MISSING"}, "provider", []string{"fake"}},
	}
}
