package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/state"
)

// memoryFiles are the database and what SQLite keeps beside it.
func memoryFiles(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, state.FileName+"*"))
	if err != nil {
		t.Fatalf("list memory: %v", err)
	}
	return found
}

func removeMemory(t testing.TB, dir string) {
	t.Helper()
	for _, f := range memoryFiles(t, dir) {
		if err := os.Remove(f); err != nil {
			t.Fatalf("remove memory: %v", err)
		}
	}
}

// Copy is a copy of an agent's memory.
type Copy map[string][]byte

// CopyMemory copies the memory of an agent that does not run.
func (m *Machine) CopyMemory() Copy {
	m.t.Helper()
	if m.Running() {
		m.t.Fatal("copy the memory of an agent that runs")
	}
	out := Copy{}
	for _, f := range memoryFiles(m.t, m.StateDir) {
		b, err := os.ReadFile(f)
		if err != nil {
			m.t.Fatalf("copy memory: %v", err)
		}
		out[filepath.Base(f)] = b
	}
	return out
}

// RollBack puts a copy in place of the memory, as restoring a backup or a snapshot would.
func (m *Machine) RollBack(c Copy) {
	m.t.Helper()
	removeMemory(m.t, m.StateDir)
	for name, b := range c {
		if err := os.WriteFile(filepath.Join(m.StateDir, name), b, 0o600); err != nil {
			m.t.Fatalf("roll back: %v", err)
		}
	}
}

// CloneDir copies a state directory with everything that is in it, as copying a disk would.
func (m *Machine) CloneDir(to string) {
	m.t.Helper()
	if err := os.CopyFS(to, os.DirFS(m.StateDir)); err != nil && !strings.Contains(err.Error(), "file exists") {
		m.t.Fatalf("clone state directory: %v", err)
	}
}
