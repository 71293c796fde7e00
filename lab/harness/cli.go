package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Command starts the command line against this controller, as a process of its own that ends with the test at the
// latest. Output is what it has printed, to both of its streams.
func (c *Client) Command(t testing.TB, args ...string) *Process {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(c.token), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--server", c.address, "--ca-file", c.caFile, "--token-file", token}, args...)
	return startProcess(t, "", Build(t).CLI, args...)
}

// Output is what the process has printed so far.
func (p *Process) Output() string { return p.output.String() }

// ExitCode is that of a process that has ended by itself; -1 of one that runs, or was killed.
func (p *Process) ExitCode() int {
	select {
	case <-p.Gone():
	default:
		return -1
	}
	var exit *exec.ExitError
	if errors.As(p.Err(), &exit) {
		return exit.ExitCode()
	}
	return 0
}
