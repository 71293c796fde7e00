package cmdline

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/secret"
)

// TestKeysAreMadeOnce: a directory that is there may hold the keys of a fleet.
func TestKeysAreMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := makeKeys(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.New(ca.Config{Dir: filepath.Join(t.TempDir(), "ca"), From: dir}); err != nil {
		t.Error(err)
	}
	if _, err := secret.OpenFile(filepath.Join(dir, "bmc.key"), false); err != nil {
		t.Error(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "root.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := makeKeys(dir, time.Now()); err == nil {
		t.Error("keys are made over others")
	}
	if after, err := os.ReadFile(filepath.Join(dir, "root.crt")); err != nil || string(after) != string(before) {
		t.Errorf("the old root is not there any more (%v)", err)
	}
}
