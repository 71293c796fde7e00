package testkit

import (
	"os"
	"path/filepath"
	"slices"
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
	const nobody = 1 << 30 // no kernel assigns such a number
	dir := t.TempDir()
	// The second had our number before us.
	gone := []string{filepath.Join(dir, filesOf+strconv.Itoa(nobody)),
		filepath.Join(dir, filesOf+strconv.Itoa(os.Getpid()))}
	kept := []string{filepath.Join(dir, filesOf+strconv.Itoa(os.Getppid())), filepath.Join(dir, filesOf+"x"),
		filepath.Join(dir, "other-1")}
	for _, path := range slices.Concat(kept, gone) {
		if err := os.MkdirAll(filepath.Join(path, "file"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeLeft(dir)
	for _, path := range gone {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s, which a dead process left, is still there: %v", path, err)
		}
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
