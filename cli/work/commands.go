package work

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands that work on machines and watch it.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{
		a.provisionCmd(),
		a.rebootCmd(),
		a.powerCmd(),
		a.reimageCmd(),
		a.testCmd(),
		a.netbootCmd(),
		a.reconfigureCmd(),
		a.enterCmd(),
		a.exitCmd(),
		a.onboardCmd(),
		a.decommissionCmd(),
		a.workflowCmd(),
		a.rolloutCmd(),
		a.rmaCmd(),
		a.opsCmd(),
		a.watchCmd(),
		a.logsCmd(),
		a.cancelCmd(),
		a.whyCmd(),
		a.timelineCmd(),
		a.certificateCmd(),
	}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
