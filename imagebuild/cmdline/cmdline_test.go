package cmdline

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// run returns the exit code and the output.
func run(t *testing.T, args ...string) (exit int, out, progress string) {
	t.Helper()
	var o, p bytes.Buffer
	exit = Main(t.Context(), args, &o, &p, "v-test")
	return exit, o.String(), p.String()
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for says, c := range map[string]struct {
		exit int
		args []string
	}{
		"unknown flag: --secret":       {exitUsage, []string{"tiny", "--secret", "x"}},
		"--out says":                   {exitUsage, []string{"installer"}},
		"accepts 1 arg":                {exitUsage, []string{"inspect"}},
		"unknown command":              {exitUsage, []string{"floppy"}},
		`"yaml" is not text or json`:   {exitUsage, []string{"inspect", "--output", "yaml", "x"}},
		"for amd64 only":               {exitUsage, []string{"tiny", "--out", dir + "/x", "--arch", "arm64"}},
		"--modules-dir needs --kernel": {exitUsage, []string{"installer", "--out", dir, "--modules-dir", "/x"}},
		"no kernel at /nowhere":        {exitFailed, []string{"installer", "--out", dir, "--kernel", "/nowhere"}},
		"packages match dist/":         {exitUsage, []string{"debian", "--out", dir + "/x"}},
		"no such file":                 {exitFailed, []string{"inspect", dir + "/none"}},
	} {
		exit, out, progress := run(t, c.args...)
		if exit != c.exit || out != "" || !strings.HasPrefix(progress, "ingot-image: ") || !strings.Contains(progress, says) {
			t.Errorf("%v: exit %d, out %q, progress %q; want %q", c.args, exit, out, progress, says)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if exit, out, _ := run(t, "--version"); exit != 0 || !strings.Contains(out, "v-test") {
		t.Errorf("exit %d, %q", exit, out)
	}
}

func TestInspectPrints(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	const digest = "f9b0078b5df596d2ea19010c001bbd009e651de2c57e8fb7e355f31eb9d3f739"
	exit, out, _ := run(t, "inspect", path)
	if exit != 0 || !strings.Contains(out, digest) || !strings.Contains(out, "partition table: none") {
		t.Errorf("exit %d, %q", exit, out)
	}
	exit, out, _ = run(t, "inspect", path, "--output", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || exit != 0 {
		t.Fatalf("exit %d, %v, %q", exit, err, out)
	}
	for key, want := range map[string]any{
		"file": path, "format": "raw", "sha256_file": digest, "sha256_raw": digest, "size_raw": 5.0, "size_file": 5.0,
		"table": "none",
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

// TestInstallerFromFlags builds one from a kernel that is only named so.
func TestInstallerFromFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kernel, modules := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "6.1.0-test")
	if err := os.WriteFile(kernel, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(modules, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(modules, "modules.builtin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	args := []string{
		"installer", "--kernel", kernel, "--modules-dir", modules, "--out", out, "--format", "kernel+initrd", "--arch",
		runtime.GOARCH,
		"--agent-binary", staticBinary(t),
	}
	exit, text, progress := run(t, args...)
	if exit != 0 || strings.Count(text, "\n") != 2 || !strings.Contains(text, filepath.Join(out, "initrd")) {
		t.Fatalf("exit %d, %q, %q", exit, text, progress)
	}
	exit, text, _ = run(t, append(args, "--output", "json")...)
	var m struct {
		Release string `json:"kernel_release"`
		Files   map[string]struct {
			Size   int64
			SHA256 string
		}
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || exit != 0 || m.Release != "6.1.0-test" ||
		m.Files["kernel"].Size != 6 {
		t.Errorf("exit %d, %v, %q", exit, err, text)
	}
}
