package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// NewControllerProcessOn is NewControllerProcess on an empty database that runs elsewhere.
func NewControllerProcessOn(t testing.TB, url string) *ControllerProcess {
	t.Helper()
	return newControllerProcess(t, place{url: url})
}

// Run runs the program with the controller's configuration to its end.
func (c *ControllerProcess) Run(args ...string) (output string, err error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.bin, append(args, "--config", c.configFile())...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// Lose kills the controller and removes everything that it has on disk.
func (c *ControllerProcess) Lose() {
	c.t.Helper()
	c.Process.Kill()
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Fatal(err)
	}
}

// MoveTo moves the controller to another host, with a configuration for another database and nothing else. Its
// addresses stay.
func (c *ControllerProcess) MoveTo(url string) {
	c.t.Helper()
	c.dir, c.at.url = c.t.TempDir(), url
	c.caFile = filepath.Join(c.dir, "data", "ca.pem")
	c.configure()
}

// ImagesDir holds the files of the image catalogue.
func (c *ControllerProcess) ImagesDir() string { return c.images() }
