package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func TestImport(t *testing.T) {
	f := &fakeServer{}
	got := f.run(t, "import", "3", "--site", "lab", "--label", "env=demo")
	if got.out != "Registered 3 machines: machine-1 … machine-3\n" || got.code != 0 || len(f.registered) != 3 {
		t.Fatalf("%+v, %d registered", got, len(f.registered))
	}
	m := f.registered[2].GetMachine()
	if m.GetMachineId() != "machine-3" || m.GetSpec().GetProvider() != "fake" || m.GetSpec().GetSite() != "lab" ||
		m.GetLabels()["env"] != "demo" {
		t.Errorf("third machine: %v", m)
	}
	if got := f.run(t, "import", "2", "--prefix", "sim-", "--start", "100", "-o",
		"name"); got.out != "sim-100\nsim-101\n" {
		t.Errorf("prefix and start: %q", got.out)
	}
}

func TestImportFiles(t *testing.T) {
	files := map[string]string{
		"m.csv": "machine_id,rack,mac_addresses,labels.env\nm-1,r1,52:54:00:00:00:01;52:54:00:00:00:02,prod\n",
		"m.yaml": "- machine_id: m-1\n  labels: {env: prod}\n  spec: {rack: r1, mac_addresses: ['52:54:00:00:00:01', " +
			"'52:54:00:00:00:02']}\n" +
			"  status: {effective_state: MAINTENANCE}\n  version: 7\n",
	}
	for name, text := range files {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &fakeServer{}
		if got := f.run(t, "import", "-f", path, "--site", "lab"); got.code != 0 || len(f.registered) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		m := f.registered[0].GetMachine()
		if m.GetSpec().GetRack() != "r1" || len(m.GetSpec().GetMacAddresses()) != 2 || m.GetLabels()["env"] != "prod" ||
			m.GetSpec().GetSite() != "lab" || m.GetSpec().GetProvider() != "" || m.GetStatus() != nil {
			t.Errorf("%s: %v", name, m)
		}
	}
}

func TestImportOfBadFiles(t *testing.T) {
	for name, text := range map[string]string{
		"unknown.yaml": "- {machine_id: m-1, spec: {rak: r1}}", "noid.yaml": "- {spec: {rack: r1}}",
		"unknown.csv": "machine_id,rak\nm-1,r1\n", "broken.yaml": "- {",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &fakeServer{}
		if got := f.run(t, "import", "-f", path); got.code != 2 || !strings.Contains(got.err, name) ||
			len(f.registered) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestSettle(t *testing.T) {
	f := fleet()
	got := f.run(t, "settle", "machine-1", "cmd-1", "--verdict", "did-not-happen", "--comment", "looked")
	if got.code != 0 || len(f.settled) != 1 {
		t.Fatalf("%+v", got)
	}
	if r := f.settled[0]; r.GetVerdict() != "did_not_happen" || r.GetCommandId() != "cmd-1" || r.GetComment() != "looked" {
		t.Errorf("sent %v", r)
	}
}

// TestWatchFleet: each event is one line with its time, machine, operation, type and phase, from PENDING over RUNNING
// to SUCCEEDED. None is lost or repeated with the connection.
func TestWatchFleet(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	in := func(phase pb.Operation_Phase) *pb.Operation {
		op := proto.CloneOf(f.op)
		op.Phase = phase
		return op
	}
	f.watches = append(f.watches[:0],
		events(lostConnection, event(in(pb.Operation_PENDING), 1, "created", "", "")),
		events(refuse(7, pb.Reason_SCOPE_TOO_SMALL, "revoked", nil),
			event(in(pb.Operation_PENDING), 1, "created", "", ""),
			event(in(pb.Operation_RUNNING), 2, "started", "", "go"),
			event(in(pb.Operation_SUCCEEDED), 3, "succeeded", "", "")),
	)
	got := f.run(t, "watch", "machine-1")
	want := []string{
		"[12:00:01Z] machine-1   op-1  REIMAGE            PENDING",
		"[12:00:02Z] machine-1   op-1  REIMAGE            RUNNING    go",
		"[12:00:03Z] machine-1   op-1  REIMAGE            SUCCEEDED",
	}
	if lines := strings.Split(strings.TrimSpace(got.out), "\n"); got.code != 7 || !slices.Equal(lines, want) ||
		strings.Count(got.err, "connection lost, retrying…") != 1 {
		t.Errorf("%+v, want %q", got, want)
	}
	if f.watchReqs[0].GetFilter() != "machine_id=machine-1" || f.watchReqs[1].GetCursor() != "c1" {
		t.Errorf("requests %v", f.watchReqs)
	}
}

func TestLogs(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.op.Phase = pb.Operation_SUCCEEDED
	f.logs = append(f.logs[:0], chunks(lostConnection, chunk(1, "boot", "a\nb\x1b[2J\n")),
		chunks(nil, chunk(2, "boot", "c\n")))
	if got := f.run(t, "logs", "op-1"); got.code != 0 || got.out != "│ [boot] a\n│ [boot] b[2J\n│ [boot] c\n" {
		t.Errorf("%+v", got)
	}
	f.logReqs = nil
	if got := f.run(t, "logs", "op-1", "-o", "json"); !strings.Contains(got.out, `"data":"c\n"`) ||
		strings.Count(got.out, "\n") != 2 {
		t.Errorf("JSON lines: %q", got.out)
	}
}

func TestCompletion(t *testing.T) {
	got := fleet().run(t, "__complete", "reboot", "")
	if !strings.Contains(got.out, "machine-1\tREADY IDLE\n") || got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "__complete", "cancel", ""); !strings.Contains(got.out,
		"op-1\tmachine-1 REIMAGE PENDING\n") {
		t.Errorf("%+v", got)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := fleet().run(t, "completion", shell); got.code != 0 || !strings.Contains(got.out, "ingot") {
			t.Errorf("%s: exit code %d", shell, got.code)
		}
	}
}

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ingot", "config.yaml")
	f := fleet()
	steps := []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"current-context"}, 3, ""},
		{[]string{"set-context", "lab", "--server", "lab:1", "--token-stdin"}, 0, "Context lab stored in " + path + "\n"},
		{[]string{"set-context", "prod", "--server", "prod:1", "--token-file", "/t"}, 0, "Context prod stored in " + path +
			"\n"},
		{[]string{"current-context"}, 0, "lab\n"},
		{[]string{"use-context", "nowhere"}, 3, ""},
		{[]string{"use-context", "prod"}, 0, "Using context prod\n"},
		{[]string{"get-contexts"}, 0, "CURRENT  NAME  SERVER\n-        lab   lab:1\n✓        prod  prod:1\n"},
		{[]string{"set-context", "new"}, 1, ""},
	}
	for _, s := range steps {
		typed := func(c *command.Config) { c.In = strings.NewReader("s3cret\n") }
		if got := f.runWith(t, typed, append([]string{"config", "--config", path}, s.args...)...); got.code != s.code ||
			got.out != s.out {
			t.Errorf("%v: %+v", s.args, got)
		}
	}
	if got := f.run(t, "config", "view", "--config", path); strings.Contains(got.out, "s3cret") ||
		!strings.Contains(got.out, "server: lab:1") {
		t.Errorf("view: %q", got.out)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; the file holds a token", info.Mode(), err)
	}
}

// What a program is started with can be read by everybody on the machine.
func TestNoSecretIsAnArgument(t *testing.T) {
	a := &command.App{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			for _, secret := range []string{"password", "secret", "token", "key", "passphrase", "bundle"} {
				if strings.Contains(f.Name, secret) && !strings.HasSuffix(f.Name, "-file") && f.Value.Type() != "bool" &&
					f.Name != "ssh-host-keys" && f.Name != "ssh-key" {
					t.Errorf("%s --%s takes a secret as an argument", c.CommandPath(), f.Name)
				}
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(newRoot(a))
}

// Every command must explain itself, and its examples must be command lines that it takes.
func TestEveryCommandHasHelpAndWorkingExamples(t *testing.T) {
	a := &command.App{}
	root := newRoot(a)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() != "exit-codes" && (c.Long == "" || c.Example == "" || c.Short == "") {
			t.Errorf("%s lacks help or an example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			checkExample(t, strings.TrimSpace(line))
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(root)
}

func checkExample(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "ingot" || strings.ContainsAny(line, `"'|>$`) {
		return
	}
	root := newRoot((&command.App{}))
	cmd, rest, err := root.Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || cmd == root {
		t.Errorf("example %q: %v", line, err)
	}
}
