package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/controller/config"
)

// shared is what each controller of one database has its own copy of: what it signs and opens secrets with.
var shared = []string{"ca", "secrets"}

// Another starts a further controller on the cluster's database, with a copy of its keys, and with everything else of
// its own.
func (c *Cluster) Another(t testing.TB, o Options) *Cluster {
	t.Helper()
	configure := o.Configure
	o.DatabaseURL, o.Stopped = c.o.DatabaseURL, true
	o.Configure = func(cfg *config.Config) {
		cfg.ImagesDir = filepath.Join(c.Data, "images")
		if configure != nil {
			configure(cfg)
		}
	}
	other := New(t, o)
	if err := copyKeys(c.Data, other.Data); err != nil {
		t.Fatal(err)
	}
	other.Start()
	other.WaitReady()
	return other
}

// Beside prepares another controller on the database of this one, which has been started. It has the same keys, tokens
// and further lines of the configuration; everything else is its own.
func (c *ControllerProcess) Beside(t testing.TB) *ControllerProcess {
	t.Helper()
	other := newControllerProcess(t, c.at)
	if err := c.hand(other); err != nil {
		t.Fatal(err)
	}
	other.Client = newClient(t, other.Front.Address(), other.caFile, c.token)
	return other
}

// copyKeys copies what controllers share, with its permissions, as an operator does who sets up the next one.
func copyKeys(from, to string) error {
	for _, dir := range shared {
		err := filepath.WalkDir(filepath.Join(from, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if e.IsDir() {
				return os.MkdirAll(filepath.Join(to, rel), 0o700)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(to, rel), b, 0o600)
		})
		if err != nil {
			return fmt.Errorf("copy keys: %w", err)
		}
	}
	return nil
}
