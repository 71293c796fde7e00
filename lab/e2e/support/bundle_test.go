package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/supportbundle"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// planted are the secrets of an installation, by where they are.
type planted map[string]string

// unpack returns the files of a bundle by their names.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(h.Name, "ingot-support/")] = text
	}
}

func (p planted) absent(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		for where, secret := range p {
			if secret == "" {
				t.Fatalf("no secret was planted in %s", where)
			}
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds the secret of %s", name, where)
			}
		}
	}
}

func manifest(t *testing.T, files map[string][]byte) (m supportbundle.Manifest) {
	t.Helper()
	if err := json.Unmarshal(files["bundle.json"], &m); err != nil {
		t.Fatalf("bundle.json: %v", err)
	}
	return m
}

// plant puts a secret into every place that takes one.
func plant(t *testing.T, c *harness.ControllerProcess, p planted) {
	p["a BMC's password"] = "planted-bmc-password"
	p["a MAAS key"] = "consumerofapi12345:tokenofapi12345678:plantedMAASkeyPlantedMAASkey"
	p["a MAAS region's user-data"], p["user-data"] = "planted-maas-user-data", "planted-user-data"
	p["a cluster's token"], p["the caller's token"] = "planted-cluster-token", c.Token()
	harness.Must(t, c.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{CredentialsRef: "rack",
		Username: "root", Password: p["a BMC's password"], AllowedEndpoints: []string{"192.0.2.0/24"}})
	harness.Must(t, baremetalv1.NewMAASServiceClient(c.Conn()).SetMAASRegion, &baremetalv1.SetMAASRegionRequest{
		RegionRef: "default", Endpoint: "http://192.0.2.1:5240/MAAS", ApiKey: p["a MAAS key"],
		UserData: "#cloud-config\n# " + p["a MAAS region's user-data"] + "\n"})
	harness.Must(t, baremetalv1.NewClusterServiceClient(c.Conn()).SetCluster, &baremetalv1.SetClusterRequest{
		ClusterRef: "prod", Server: "https://192.0.2.2:6443", CaPem: readFile(t, c.CAFile()),
		BearerToken: p["a cluster's token"]})
	hook := harness.Must(t, c.Admin().CreateWebhook, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
		WebhookId: "hook", Url: "https://192.0.2.3/hook"}})
	p["a webhook"] = regexp.MustCompile(`whsec_[^"\s]+`).FindString(hook.String())
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(block)
	p["an SSH key"] = strings.Split(string(text), "\n")[2]
	harness.Must(t, baremetalv1.NewScriptServiceClient(c.Conn()).SetSSHCredentials,
		&baremetalv1.SetSSHCredentialsRequest{CredentialsRef: "ops", Username: "root", PrivateKey: text})
	p["an API token"] = harness.Must(t, c.Admin().CreateAPIToken, &baremetalv1.CreateAPITokenRequest{Name: "ci",
		Scope: "read"}).GetSecret()
	c.Register(&baremetalv1.Machine{MachineId: "m-token"})
	p["a bootstrap token"] = c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: "m-token"})
	data := filepath.Dir(c.CAFile())
	p["the key of stored secrets"] = strings.TrimSpace(string(readFile(t, data+"/secrets/bmc.key")))
	p["the CA's key"] = strings.Split(string(readFile(t, data+"/ca/v1/intermediate.key")), "\n")[1]
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logOf has journalctl print a log in which every secret stands that a careless message could hold.
func logOf(t *testing.T, p planted) {
	t.Helper()
	dir := t.TempDir()
	lines := fmt.Sprintf("level=INFO msg=started\nmsg=%q\nmsg=%q\nmsg=%q\nmsg=%q\n%s\n", "authorization: Bearer "+
		p["the caller's token"], "connect to "+p["the database's URL"], "bundle "+p["a bootstrap token"], "sign with "+
		p["a webhook"], "-----BEGIN PRIVATE KEY-----\n"+p["the CA's key"]+"\n-----END PRIVATE KEY-----\nthe end")
	if err := os.WriteFile(dir+"/lines", []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	program := "#!/bin/sh\n[ \"$2\" = ingot-controller ] && cat " + dir + "/lines\n"
	if err := os.WriteFile(dir+"/journalctl", []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestABundleShowsMuchAndNoSecret(t *testing.T) {
	p := planted{"the database's password": "planted%2Fdb-password"}
	u, err := url.Parse(testkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), "planted/db-password")
	p["the database's URL"] = u.String()
	c := harness.NewControllerProcessOn(t, u.String())
	config := filepath.Join(filepath.Dir(filepath.Dir(c.CAFile())), "controller.yaml")
	p["a comment in the configuration"] = "planted-comment"
	text := append(readFile(t, config), "\n# old password: planted-comment\n"...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Start("")
	plant(t, c, p)
	logOf(t, p)
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
		MachineId:      m.ID,
		RequestId:      "seed",
		ImageRef:       "ubuntu-2204",
		Seed:           &baremetalv1.SystemSeed{UserData: "#cloud-config\n# " + p["user-data"] + "\n"},
		TimeoutSeconds: rig.StepTime,
	})
	c.Wait(op.GetOperationId(), rig.Soon)
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	lost := rig.Reboot(t, c.Client, m.ID, "nobody", 1)
	if got := c.Wait(lost.GetOperationId(), rig.Soon); got.GetPhase() != rig.Failed {
		t.Fatalf("a reboot of a machine whose agent is off: %v", got)
	}

	out := filepath.Join(t.TempDir(), "bundle.tar.gz")
	// The harness lets the system choose the ports.
	said, err := c.Run("support-bundle", "--out", out, "--listen-http", c.Addresses().HTTP)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, out)
	files["(what is printed)"] = []byte(said)
	p.absent(t, files)
	if missing := manifest(t, files).Missing; len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	for name, want := range map[string][]string{
		"config.yaml": {"heartbeat_interval", u.Path}, "doctor.json": {`"check"`}, "metrics.txt": {"ingot_rpc_seconds"},
		"log.txt": {"msg=started", "the end"}, "database/schema.json": {`"version"`, `"river_migrations"`},
		"database/counts.json": {`"machines_by_effective_state"`, "REBOOT"}, "database/queues.json": {"operation"},
		"database/controllers.json": {`"lease_until"`}, "database/agents.json": {m.Identity().AgentID, `"version"`},
		"database/failed-operations.json": {lost.GetOperationId(), `"timeline"`, "AGENT_UNAVAILABLE"},
		"database/sites.json":             {}, "database/freeze.json": {"agents_not_seen"}, "database/authority.json": {},
	} {
		text, ok := files[name]
		if !ok {
			t.Errorf("there is no %s", name)
		}
		for _, w := range want {
			if !bytes.Contains(text, []byte(w)) {
				t.Errorf("%s does not say %s:\n%s", name, w, text[:min(len(text), 2000)])
			}
		}
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	withoutDatabase(t, p, config)
}

// withoutDatabase makes a bundle while the database and the controller are down.
func withoutDatabase(t *testing.T, p planted, config string) {
	dir := t.TempDir()
	text := regexp.MustCompile(`url: "[^"]*"`).ReplaceAllString(string(readFile(t, config)),
		`url: "postgres://ingot:planted%2Fdb-password@127.0.0.1:1/ingot?connect_timeout=2"`)
	if err := os.WriteFile(dir+"/controller.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), harness.Build(t).Controller, "support-bundle", "--config",
		dir+"/controller.yaml", "--out", dir+"/bundle.tar.gz")
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	files := unpack(t, dir+"/bundle.tar.gz")
	files["(what is printed)"] = said
	p.absent(t, files)
	missing := manifest(t, files).Missing
	for _, name := range []string{"database/schema.json", "database/agents.json", "database/failed-operations.json"} {
		if missing[name] == "" || files[name] != nil {
			t.Errorf("%s: missing %q, %d bytes", name, missing[name], len(files[name]))
		}
	}
	if !bytes.Contains(files["doctor.json"], []byte("database")) || files["config.yaml"] == nil {
		t.Errorf("doctor says:\n%s", files["doctor.json"])
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
