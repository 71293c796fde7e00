//go:build netbox

package netbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
)

// TestTheDocumentedSetUp runs the commands of the README, and the unit with its file of variables, as they stand there:
// only addresses, tokens and where files are is the test's.
func TestTheDocumentedSetUp(t *testing.T) {
	t.Parallel()
	b := boxes(t)["4.6.8"]
	b.t = t
	w := newWorld(t, b)
	p := w.furnish()
	w.device(p, "R42-01", nil)
	dir := t.TempDir()
	for name, text := range map[string]string{"netbox-token": w.token, "token": w.c.Token()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine := strings.NewReplacer("https://netbox.example.net", w.url, "ingot.example.net:50051", w.c.Front.Address(),
		"localhost:50051", w.c.Front.Address(), "/etc/ingot/ca.pem", w.c.CAFile(), "=ca.pem", "="+w.c.CAFile(),
		"/usr/bin/ingot-netbox-sync", w.program)
	command := func(script string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + filepath.Dir(w.program) + ":" + os.Getenv("PATH")}
		return cmd
	}
	var exports, runs []string
	for line := range strings.Lines(block(t, "../../../integrations/netbox/README.md")) {
		switch line = mine.Replace(line); {
		case strings.HasPrefix(line, "export "):
			exports = append(exports, line)
		case strings.HasPrefix(line, "ingot-netbox-sync "):
			runs = append(runs, line)
		}
	}
	if len(exports) == 0 || len(runs) != 3 {
		t.Fatalf("the README has %q and %q", exports, runs)
	}
	for i, want := range []string{"made 6 custom fields", "1 machines created"} {
		out, err := command(strings.Join(exports, "") + runs[i]).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s%v: %s", runs[i], err, out)
		}
	}
	if n := w.count(); n != 0 {
		t.Errorf("the dry run has made %d machines", n)
	}
	if out, err := command(unit(t, w, mine)).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "1 machines created") {
		t.Errorf("the unit: %v: %s", err, out)
	}
	if n := w.count(); n != 1 {
		t.Errorf("the unit has made %d machines", n)
	}
	w.device(p, "R42-02", nil)
	again := command(strings.Join(exports, "") + "exec " + runs[2])
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, rig.Soon, func() bool { return w.count() == 2 }, "%s makes nothing", runs[2])
	if err := again.Process.Kill(); err != nil {
		t.Errorf("the program that repeats itself has ended: %v", err)
	}
	_ = again.Wait() // it was killed
}

// block returns the first block of commands of a page.
func block(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```bash\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no commands", path)
	}
	return string(m[1])
}

// unit returns the command of the systemd unit, after the packaged file of variables, filled in as the README tells.
func unit(t *testing.T, w *world, mine *strings.Replacer) string {
	t.Helper()
	read := func(path string) []string {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(mine.Replace(string(text)), "\n")
	}
	var script []string
	for _, line := range read("netbox-sync.env") {
		name, value, is := strings.Cut(line, "=")
		switch {
		case !is || strings.HasPrefix(line, "#"):
			continue
		case name == "NETBOX_URL":
			value = w.url
		case name == "NETBOX_DEVICES":
			value = "role=server&site=oslo"
		}
		script = append(script, "export "+name+"='"+value+"'")
	}
	lines := read("systemd/ingot-netbox-sync.service")
	at := func(prefix string) string {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
		if i < 0 {
			t.Fatalf("the unit has no %s", prefix)
		}
		return strings.TrimPrefix(lines[i], prefix)
	}
	// %d is the folder of the credentials, which have these names there (systemd.unit(5)).
	script = append(script, "export "+strings.ReplaceAll(at("Environment="), "%d", "."),
		strings.ReplaceAll(at("ExecStart="), "${NETBOX_DEVICES}", `"${NETBOX_DEVICES}"`))
	return strings.Join(script, "\n")
}
