package bootdisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func newBytes(b []byte) io.Reader { return bytes.NewReader(b) }

// run returns the program's output. mtools would ask questions on a terminal, so there is no standard input.
func run(ctx context.Context, name string, args ...string) (string, error) {
	path, err := lookTool(name)
	if err != nil {
		return "", err
	}
	return output(command(ctx, path, args))
}

// runMounting is for a program that mounts things where we work. Its mounts are in a namespace of its own, which ends
// with it: whatever happens, removing the directory never reaches through one of them into the host's /dev. Told to
// end, it gets time to clean up, and so do its children.
func runMounting(ctx context.Context, name string, args ...string) error {
	path, err := lookTool(name)
	if err != nil {
		return err
	}
	cmd := command(ctx, path, args)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endGrace
	if _, err = output(cmd); ctx.Err() != nil {
		err = context.Cause(ctx) // the program's own error is of no interest
	}
	if cmd.Process != nil {
		// No process of the group may write to the directory from here on; mostly none is left.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}

// endGrace is how long a program that mounts things may take to clean up.
const endGrace = 10 * time.Second

func command(ctx context.Context, path string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1", "TZ=UTC")
	return cmd
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
