package work

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) powerCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "power",
		Short: "Switch a machine on or off from outside",
		Long: `Switch a machine through its BMC, or through its provider. It is done when the power state
was read back. The power that was seen last is in ingot machine get.`,
		Example: "  ingot power off m-1\n  ingot power on m-1",
	}
	cmd.AddCommand(a.app.RunsPlan(&cobra.Command{
		Use:   "on MACHINE",
		Short: "Switch a machine on",
		Long: `Switch a machine on. It boots as its firmware says; whether a system comes up is not waited for.` +
			command.WaitHelp,
		Example: "  ingot power on m-1",
	}, "", "power-on"), a.app.RunsPlan(&cobra.Command{
		Use:   "off MACHINE",
		Short: "Switch a machine in maintenance off",
		Long: `Switch a machine in maintenance off: its system is asked to shut down, and if it does not
within a while its power is cut. What runs on it ends.` + command.WaitHelp,
		Example: "  ingot power off m-1",
	}, "", "power-off"))
	return cmd
}
