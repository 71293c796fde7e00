package userdata_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/userdata"
)

// types is a line of the oracle: "FILE: TYPE TYPE".
func types(file string, raw []byte) string {
	text, err := userdata.Plain(raw)
	if err != nil {
		return ""
	}
	var out []string
	for _, p := range userdata.Parts(text) {
		if p.Type == userdata.Broken {
			return filepath.Base(file) + ": error"
		}
		kind := strings.ReplaceAll(p.Type, "-once-url", "-url")
		if !p.Handled() {
			kind = "(" + kind + ")"
		}
		out = append(out, kind)
	}
	if out == nil {
		out = []string{"nothing"}
	}
	return filepath.Base(file) + ": " + strings.Join(out, " ")
}

// TestCases: every file of testdata/cases has the parts that cloud-init finds, which testdata/oracle.txt keeps. A new
// file is added to it by testdata/oracle.py.
func TestCases(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/oracle.txt")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(table)) {
		name, _, _ := strings.Cut(line, ": ")
		said[name] = strings.TrimSpace(line)
	}
	files, err := filepath.Glob("testdata/cases/*.data")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, want := types(file, raw), said[filepath.Base(file)]
		if got == "" { // cloud-init takes the type and fails on the text
			_, err := userdata.Plain(raw)
			if !errors.Is(err, userdata.ErrNotUTF8) || !strings.Contains(err.Error(), "line 2") {
				t.Errorf("%s: %v", file, err)
			}
		} else if got != want {
			t.Errorf("%s\ncloud-init: %s", got, want)
		}
	}
}

// TestTheOracle runs the code of Debian's cloud-init over every case.
func TestTheOracle(t *testing.T) {
	t.Parallel()
	packages := os.Getenv("INGOT_TEST_CLOUD_INIT")
	if packages == "" {
		packages = "/usr/lib/python3/dist-packages"
	}
	if _, err := os.Stat(filepath.Join(packages, "cloudinit/user_data.py")); err != nil {
		t.Fatal("cloud-init is not installed: scripts/install-deps test installs it")
	}
	files, err := filepath.Glob("testdata/cases/*.data")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{"testdata/oracle.py"}, files...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("testdata/oracle.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != string(table) {
		t.Errorf("cloud-init:\n%s\ntestdata/oracle.txt:\n%s", out, table)
	}
}

func FuzzParts(f *testing.F) {
	files, _ := filepath.Glob("testdata/cases/*.data")
	for _, file := range files {
		if raw, err := os.ReadFile(file); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text, err := userdata.Plain(raw)
		if err != nil {
			return
		}
		for _, p := range userdata.Parts(text) {
			if strings.Count(p.Type, "/") != 1 || len(p.Content) > 2*userdata.Most {
				t.Errorf("%q, %d bytes", p.Type, len(p.Content))
			}
		}
	})
}
