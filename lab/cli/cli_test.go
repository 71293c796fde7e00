package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/vm"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := Root()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestRebootsReadsTheEventLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := execute(t, "vm", "reboots", "--dir", dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
	write(t, filepath.Join(dir, vm.EventsFile), `{"event":"RESET","timestamp":{"seconds":10,"microseconds":0}}
{"event":"RESET","timestamp":{"seconds":20,"microseconds":0}}
`)
	if out, err := execute(t, "vm", "reboots", "--dir", dir); out != "2\n" || err != nil {
		t.Errorf("printed %q, %v", out, err)
	}
}

func TestCommandsRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := write(t, filepath.Join(dir, "script"), "#!/bin/sh\n")
	for says, args := range map[string][]string{
		"agent-binary":           {"image", "build"},
		"dir":                    {"vm", "run", "--agent-binary", script},
		"required flag":          {"vm", "reset"},
		"find running machine":   {"vm", "status", "--dir", dir},
		"unknown command":        {"vm", "explode"},
		`unknown flag: --secret`: {"vm", "run", "--secret", "x"},
	} {
		if _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: error %v, want one with %q", args, err, says)
		}
	}
}

func TestStateDiskIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, stateFile)
	f := runFlags{token: write(t, filepath.Join(dir, "t"), "the-token"), files: []string{"agent.yaml"}}
	if err := f.stateDisk(path); err == nil {
		t.Error("a file without a source was accepted")
	}
	f.files = []string{"agent.yaml=" + write(t, filepath.Join(dir, "a"), "the-config")}
	if err := f.stateDisk(path); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the-token", imagelayout.TokenFile, "the-config", "agent.yaml"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("disk does not hold %q", want)
		}
	}
	f.token = filepath.Join(dir, "used-and-removed")
	if err := f.stateDisk(path); err != nil {
		t.Errorf("second run: %v", err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(first, again) {
		t.Errorf("second run changed the disk (%v)", err)
	}
}

func TestFollowPrintsWhatIsNew(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "console"), "earlier run\n")
	from, err := size(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	over, result := make(chan struct{}), make(chan error, 1)
	task.Background("follow", func() { result <- follow(path, from, &out, over) })
	write(t, path, "earlier run\nthis run\n")
	close(over)
	if err := <-result; err != nil || out.String() != "this run\n" {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}
