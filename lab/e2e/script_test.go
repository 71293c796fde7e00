package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
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

// TestASecretArgumentReachesTheScriptAlone: the argument is sealed in every table, shown as (secret), and taken out of
// the lines that the script prints; the script gets it.
func TestASecretArgumentReachesTheScriptAlone(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	server := sshtest.Start(t)
	database := testkit.Database(t)
	c := harness.New(t, harness.Options{DatabaseURL: database})
	scripts, plans := baremetalv1.NewScriptServiceClient(c.Conn()), baremetalv1.NewPlanServiceClient(c.Conn())
	harness.Must(t, scripts.AddScript, &baremetalv1.AddScriptRequest{Script: &baremetalv1.Script{ScriptRef: "fix-1"},
		Content: []byte("printf %s \"$2\" >\"$1\"\necho \"the key is $2.\"\n")})
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
	ordered := &baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
		PlanId: "with-key", Steps: []*baremetalv1.Step{{Name: "fix", TimeoutSeconds: 60, Kind: &baremetalv1.Step_Ssh{
			Ssh: &baremetalv1.SshCommand{Command: "fix-1", Args: []string{file, secret}, SecretArgs: []int32{1}},
		}}},
	}}
	made := harness.Must(t, plans.CreatePlan, ordered)
	again := harness.Must(t, plans.CreatePlan, ordered)
	read := harness.Must(t, plans.GetPlan, &baremetalv1.GetPlanRequest{PlanId: "with-key"})
	for _, p := range []*baremetalv1.Plan{made, again, read} {
		if got := p.GetSteps()[0].GetSsh().GetArgs(); got[1] != "(secret)" || got[0] != file || p.GetVersion() != 1 {
			t.Errorf("the plan, version %d, shows %q", p.GetVersion(), got)
		}
	}
	if _, err := plans.CreatePlan(t.Context(), &baremetalv1.CreatePlanRequest{Plan: read}); err == nil {
		t.Error("what an answer shows was taken for the argument")
	}
	run := harness.Must(t, baremetalv1.NewRunServiceClient(c.Conn()).StartRun, &baremetalv1.StartRunRequest{
		MachineId: "m-ssh", RequestId: "r-1", PlanId: "with-key",
	})
	rig.Ended(t, c.Wait(run.GetRunId(), rig.Soon), rig.Succeeded, "")
	if got, err := os.ReadFile(file); err != nil || string(got) != secret {
		t.Errorf("the script got %q (%v)", got, err)
	}
	code, out := c.Ingot("logs", run.GetRunId())
	if code != 0 || !strings.Contains(out, "the key is (secret).") || strings.Contains(out, secret) {
		t.Errorf("the log, with code %d: %s", code, out)
	}
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context()) //nolint:errcheck // the test ends
	rows := 0
	err = db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM plans WHERE position($1::bytea IN body) > 0)
		+ (SELECT count(*) FROM commands WHERE position($1::bytea IN spec) > 0)
		+ (SELECT count(*) FROM operation_steps WHERE position($1::bytea IN spec) > 0)`, []byte(secret)).Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d rows hold the argument in clear (%v)", rows, err)
	}
}
