package harness

import (
	"bytes"
	"context"
	"os"
	"strings"

	"github.com/ingot-metal/ingot/cli"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Ingot runs the command line as an operator would, and returns its exit code and its output.
func (c *Client) Ingot(args ...string) (int, string) {
	c.t.Helper()
	return c.IngotWith(c.t.Context(), "", args...)
}

// IngotWith is Ingot under a context of its own, with the input of its prompts.
func (c *Client) IngotWith(ctx context.Context, typed string, args ...string) (int, string) {
	c.t.Helper()
	env := map[string]string{
		"INGOT_SERVER": c.address, "INGOT_CA_FILE": c.caFile, "INGOT_TOKEN": c.token, "INGOT_CONFIG": os.DevNull,
		"HOME": c.t.TempDir(),
	}
	return runIngot(ctx, env, typed, args...)
}

// RunIngot runs the command line in an environment of its own.
func RunIngot(ctx context.Context, env map[string]string, args ...string) (int, string) {
	return runIngot(ctx, env, "", args...)
}

func runIngot(ctx context.Context, env map[string]string, typed string, args ...string) (int, string) {
	var out bytes.Buffer
	code := cli.Run(ctx, command.Config{
		Args: args, In: strings.NewReader(typed), Out: &out, Err: &out, Getenv: func(name string) string { return env[name] },
		Clock: clock.Real(), Connect: client.Dial, Version: "test",
	})
	return code, out.String()
}
