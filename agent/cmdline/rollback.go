package cmdline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
)

// rollback is what the watchdog of a configuration runs: systemd's timer at the deadline, a unit at boot, or process 1.
// An operator on the host has the other flags.
func (a app) rollback() *cobra.Command {
	var pending, now, show, keep bool
	cmd := &cobra.Command{
		Use: "rollback", Short: "Undo a configuration that has not proved itself", Args: cobra.NoArgs,
		Long: `Undo a configuration that has not proved itself: files of who manages interfaces, interfaces,
host name, firewall.

With --pending it does so if the deadline has passed or the machine was rebooted since, and else
leaves it alone. This is what systemd runs at the deadline and at boot. With --now it does so at
once. Nothing to undo is no error. It works without the agent and without its state directory.

With --show it says what waits for its proof or for its rollback, and why the last try to roll back
has failed. With --keep the host stays as it is: nothing is rolled back any more, the operation ends
unknown, and the next order is accepted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := host.New(host.Config{})
			var said string
			var err error
			switch {
			case only(pending, now, show, keep), only(now, pending, show, keep):
				said, err = rollBack(cmd.Context(), l, now)
			case only(show, pending, now, keep):
				said, err = showGuard(cmd.Context(), l)
			case only(keep, pending, now, show):
				said, err = keepAsItIs(cmd.Context(), l)
			default:
				err = fmt.Errorf("%w: give one of --pending, --now, --show, --keep", errUsage)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
	cmd.Flags().BoolVar(&pending, "pending", false, "only what is past its deadline, or of another boot")
	cmd.Flags().BoolVar(&now, "now", false, "whatever waits for its proof")
	cmd.Flags().BoolVar(&show, "show", false, "change nothing, and say what waits")
	cmd.Flags().BoolVar(&keep, "keep", false, "roll nothing back, now or later: the host stays as it is")
	return cmd
}

// only reports whether the first flag is set, and no other.
func only(first bool, others ...bool) bool { return first && !slices.Contains(others, true) }

func rollBack(ctx context.Context, l *host.Linux, now bool) (string, error) {
	done, err := l.RollBackPending(ctx, now)
	if done {
		return "rolled back", err
	}
	return "nothing to roll back", err
}

func showGuard(ctx context.Context, l *host.Linux) (string, error) {
	g, err := l.Guarded(ctx)
	if err != nil {
		return "", err
	}
	return guardText(g, clock.Boottime()), nil
}

// guardText describes the state of the last change, at a time since boot.
func guardText(g *rollback.Guard, sinceBoot time.Duration) string {
	if g == nil {
		return "no configuration was ever applied here"
	}
	state := strings.ReplaceAll(string(g.State), "_", " ")
	text := fmt.Sprintf("the configuration of command %s is %s", g.CommandID, state)
	if g.State != rollback.GuardPending {
		return text
	}
	text += "\n  undone by a rollback: " + strings.Join(g.Parts(), ", ")
	switch left := (g.Deadline - sinceBoot).Round(time.Second); {
	case g.Error != "":
		text += "\n  the last try to roll back has failed, and is repeated every 10 s: " + g.Error
	case left > 0:
		text += fmt.Sprintf("\n  it is rolled back in %s, or at the next boot, unless it proves itself", left)
	default:
		text += "\n  its time is up, and it is about to be rolled back"
	}
	return text + "\nroll back now: ingot-agent rollback --now\nkeep the host as it is: ingot-agent rollback --keep"
}

func keepAsItIs(ctx context.Context, l *host.Linux) (string, error) {
	g, err := l.AbandonGuard(ctx)
	switch {
	case err != nil:
		return "", err
	case g == nil:
		return "nothing waits: nothing to keep", nil
	case g.CommandID == "":
		return fmt.Sprintf(
			"the record could not be read (%s); it is put aside as /%s.damaged",
			g.Error,
			rollback.GuardFile,
		), nil
	}
	const kept = "the host stays as it is; the configuration of command %s is neither proven nor rolled back"
	return fmt.Sprintf(kept, g.CommandID), nil
}
