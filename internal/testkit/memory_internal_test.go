package testkit

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 8 kB\nMemFree: 2 kB\nMemAvailable:       4 kB\nBuffers: 1 kB\n": 4096,
		"MemTotal: 8 kB\n":      0,
		"MemAvailable:":         0,
		"MemAvailable: many kB": 0,
		"":                      0,
	} {
		if got := availableMemory(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

func TestOnlyWhatTheDeadLeftIsRemoved(t *testing.T) {
	const nobody = 1 << 30 // no kernel gives a process such a number
	dir := t.TempDir()
	dead := filepath.Join(dir, filesOf+strconv.Itoa(nobody))
	kept := []string{filepath.Join(dir, filesOf+strconv.Itoa(os.Getpid())), filepath.Join(dir, filesOf+"x"), filepath.Join(dir, "other-1")}
	for _, path := range append(kept, dead) {
		if err := os.MkdirAll(filepath.Join(path, "file"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeLeft(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what a dead process left is still there: %v", err)
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
