package why

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// withBMC registers a machine without an agent, whose BMC is a real Redfish service that misbehaves.
func (r *whyRig) withBMC(t *testing.T, password string, f bmc.Faults) (string, *bmc.Redfish) {
	t.Helper()
	service, err := bmc.StartRedfish(t.Context(), bmc.RedfishConfig{
		Chassis: &bmc.Memory{Info: bmc.About{Name: t.Name()}}, Listen: "127.0.0.1:0", User: "admin", Password: "right",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	ref := "bmc-" + password
	harness.Must(t, r.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{CredentialsRef: ref,
		Username: "admin", Password: password, AllowedEndpoints: []string{"127.0.0.0/8"}})
	service.Misbehave(f)
	m := r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
		Site: whySite, BmcEndpoint: service.Endpoint(), BmcCredentialsRef: ref,
	}})
	rig.Maintenance(t, r.Client, m.GetMachineId())
	return m.GetMachineId(), service
}

// runOnce runs a plan of one step, without another try.
func (r *whyRig) runOnce(t *testing.T, machineID string, step *baremetalv1.Step) *baremetalv1.Operation {
	t.Helper()
	plan := "once-" + machineID
	step.Name, step.TimeoutSeconds, step.MaxRetries = "only", 25, -1
	harness.Must(t, baremetalv1.NewPlanServiceClient(r.Conn()).CreatePlan, &baremetalv1.CreatePlanRequest{
		Plan: &baremetalv1.Plan{PlanId: plan, Steps: []*baremetalv1.Step{step}},
	})
	run := harness.Must(t, baremetalv1.NewRunServiceClient(r.Conn()).StartRun, &baremetalv1.StartRunRequest{
		MachineId: machineID, RequestId: "r", PlanId: plan,
	})
	return r.Operation(run.GetRunId())
}

func powerCycle() *baremetalv1.Step {
	return &baremetalv1.Step{Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{Mode: "bmc"}}}
}

// faultsOfBMCs: real adapters against a Redfish service that does what bad ones do.
func faultsOfBMCs() []injected {
	cycled := func(password string, f bmc.Faults) func(*testing.T, *whyRig) string {
		return func(t *testing.T, r *whyRig) string {
			id, _ := r.withBMC(t, password, f)
			r.failedOperation(t, r.runOnce(t, id, powerCycle()))
			return id
		}
	}
	return []injected{
		{"BMC password wrong", cycled("wrong", bmc.Faults{}), []string{"BMC_AUTH_FAILED"}, "operator",
			[]string{"password", "bmc-wrong"}},
		{"BMC that accepts and does nothing", cycled("right", bmc.Faults{Liar: true}), []string{"BMC_NO_EFFECT"}, "operator",
			[]string{"accept"}},
		{"BMC that never answers", cycled("right", bmc.Faults{Silent: true}), []string{"BMC_UNREACHABLE"}, "operator",
			[]string{"127.0.0.1"}},
		{"BMC switched off", func(t *testing.T, r *whyRig) string {
			id, service := r.withBMC(t, "right", bmc.Faults{})
			if err := service.Close(); err != nil {
				t.Fatal(err)
			}
			r.failedOperation(t, r.runOnce(t, id, powerCycle()))
			return id
		}, []string{"BMC_UNREACHABLE"}, "operator", []string{"127.0.0.1"}},
		{"BMC gone while nothing is under way", func(t *testing.T, r *whyRig) string {
			id, service := r.withBMC(t, "right", bmc.Faults{})
			testkit.Eventually(t, rig.Soon, func() bool { return rig.Condition(r.Machine(id), "BMCReachable").GetStatus() },
				"the BMC is never seen")
			if err := service.Close(); err != nil {
				t.Fatal(err)
			}
			return id
		}, []string{"BMC_UNREACHABLE"}, "bmc", []string{"127.0.0.1"}},
	}
}

// scripted registers a machine that is reached over SSH, and runs a script on it.
func (r *whyRig) scripted(t *testing.T, endpoint, hostKey, user string, key []byte) string {
	t.Helper()
	scripts := baremetalv1.NewScriptServiceClient(r.Conn())
	harness.Must(t, scripts.AddScript, &baremetalv1.AddScriptRequest{
		Script: &baremetalv1.Script{ScriptRef: "exit"}, Content: []byte("echo the fan is dead >&2\nexit 7\n"),
	})
	name := strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-"))
	harness.Must(t, scripts.SetSSHCredentials, &baremetalv1.SetSSHCredentialsRequest{CredentialsRef: name, Username: user,
		PrivateKey: key})
	m := r.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
		Site: whySite, SshEndpoint: endpoint, SshHostKeys: []string{hostKey}, SshCredentialsRef: name,
	}})
	rig.Maintenance(t, r.Client, m.GetMachineId())
	r.failedOperation(t,
		r.runOnce(t, m.GetMachineId(),
			&baremetalv1.Step{Kind: &baremetalv1.Step_Ssh{Ssh: &baremetalv1.SshCommand{Command: "exit"}}}))
	return m.GetMachineId()
}

// faultsOfScripts: a real SSH server.
func faultsOfScripts() []injected {
	return []injected{
		{"SSH host key changed", func(t *testing.T, r *whyRig) string {
			s := sshtest.Start(t)
			_, other := sshtest.Key(t)
			return r.scripted(t, s.Endpoint, ssh.FingerprintSHA256(other), s.Username, s.PrivateKey)
		}, []string{"SSH_HOST_KEY_MISMATCH"}, "operator", []string{"key"}},
		{"SSH key not known there", func(t *testing.T, r *whyRig) string {
			s := sshtest.Start(t)
			other, _ := sshtest.Key(t)
			return r.scripted(t, s.Endpoint, s.Fingerprint, s.Username, other)
		}, []string{"SSH_AUTH_FAILED"}, "operator", []string{"refuse"}},
		{"SSH server gone", func(t *testing.T, r *whyRig) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			endpoint := l.Addr().String()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			private, public := sshtest.Key(t)
			return r.scripted(t, endpoint, ssh.FingerprintSHA256(public), "root", private)
		}, []string{"SSH_UNREACHABLE"}, "operator", []string{"127.0.0.1"}},
		{"script that fails", func(t *testing.T, r *whyRig) string {
			s := sshtest.Start(t)
			return r.scripted(t, s.Endpoint, s.Fingerprint, s.Username, s.PrivateKey)
		}, []string{"EXECUTION_FAILED"}, "operator", []string{"7"}},
	}
}
