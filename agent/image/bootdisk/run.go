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
)

func newBytes(b []byte) io.Reader { return bytes.NewReader(b) }

// run gives what the program prints. mtools would ask questions on a terminal, so there is no standard input.
func run(ctx context.Context, name string, args ...string) (string, error) {
	path, err := lookTool(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1", "TZ=UTC")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
