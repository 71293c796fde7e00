package cmdline

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent/host"
)

// rollback is what the watchdog of a configuration runs: systemd's timer at the deadline, a unit at boot, or process 1.
func (a app) rollback() *cobra.Command {
	var pending, now bool
	cmd := &cobra.Command{
		Use: "rollback", Short: "Undo a configuration that has not proved itself", Args: cobra.NoArgs,
		Long: `Undo a configuration that has not proved itself: files for systemd-networkd, interfaces, host name, firewall.

With --pending it does so if the deadline has passed or the machine was rebooted since, and else leaves it alone. This is
what systemd runs at the deadline and at boot. With --now it does so at once. Nothing to undo is no error. It works
without the agent and without its state directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pending == now {
				return fmt.Errorf("%w: give either --pending or --now", errUsage)
			}
			done, err := host.New(host.Config{}).RollBackPending(cmd.Context(), now)
			if err != nil {
				return err
			}
			word := "nothing to roll back"
			if done {
				word = "rolled back"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), word)
			return err
		},
	}
	cmd.Flags().BoolVar(&pending, "pending", false, "only what is past its deadline, or of another boot")
	cmd.Flags().BoolVar(&now, "now", false, "whatever waits for its proof")
	return cmd
}
