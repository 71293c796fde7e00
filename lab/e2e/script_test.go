package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// A script goes from the catalogue through the controller and the site's agent to a real SSH server, and its exit code
// comes back.
func TestAScriptFromTheCatalogueToTheMachine(t *testing.T) {
	t.Parallel()
	server := sshtest.Start(t)
	c := harness.New(t, harness.Options{})
	scripts := baremetalv1.NewScriptServiceClient(c.Conn())
	text := []byte("echo ran >>\"$1\"\necho \"said $2\"\nexit \"$3\"\n")
	sum := sha256.Sum256(text)
	harness.Must(t, scripts.AddScript, &baremetalv1.AddScriptRequest{Script: &baremetalv1.Script{ScriptRef: "fix-1"},
		Content: text})
	harness.Must(t, scripts.SetSSHCredentials, &baremetalv1.SetSSHCredentialsRequest{
		CredentialsRef: "rack", Username: server.Username, PrivateKey: server.PrivateKey,
	})
	m := c.Register(&baremetalv1.Machine{MachineId: "m-ssh", Spec: &baremetalv1.MachineSpec{
		SshEndpoint: server.Endpoint, SshHostKeys: []string{server.Fingerprint}, SshCredentialsRef: "rack",
	}})
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c.NewSite(t, "default", world, harness.MachineOptions{ID: "site-ssh", Change: func(cfg *agent.Config) {
		cfg.Site = &agent.SiteConfig{CacheDir: t.TempDir(), CacheBytes: 1 << 30, BMCPoll: time.Minute, ScriptDir: server.Base}
	}})
	rig.Maintenance(t, c.Client, m.GetMachineId())
	file := filepath.Join(t.TempDir(), "file")
	for plan, code := range map[string]string{"good": "0", "bad": "7"} {
		harness.Must(t, baremetalv1.NewPlanServiceClient(c.Conn()).CreatePlan,
			&baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
				PlanId: plan, Steps: []*baremetalv1.Step{{Name: "fix", TimeoutSeconds: 60, Kind: &baremetalv1.Step_Ssh{
					Ssh: &baremetalv1.SshCommand{Command: "fix-1", Args: []string{file, "$(id); \"hello\"", code}},
				}}},
			}})
		run := harness.Must(t, baremetalv1.NewRunServiceClient(c.Conn()).StartRun, &baremetalv1.StartRunRequest{
			MachineId: "m-ssh", RequestId: plan, PlanId: plan,
		})
		op := c.Wait(run.GetRunId(), rig.Soon)
		if code != "0" {
			rig.Ended(t, op, rig.Failed, "EXECUTION_FAILED")
			continue
		}
		rig.Ended(t, op, rig.Succeeded, "")
		for key, want := range map[string]string{"exit_code": "0", "script_sha256": hex.EncodeToString(sum[:]),
			"ssh_host_key": server.Fingerprint} {
			if op.GetEvidence()[key] != want {
				t.Errorf("evidence %s is %q, want %q", key, op.GetEvidence()[key], want)
			}
		}
	}
	if ran, err := os.ReadFile(file); err != nil || strings.Count(string(ran), "ran") != 2 {
		t.Errorf("two runs left %q (%v)", ran, err)
	}
}
