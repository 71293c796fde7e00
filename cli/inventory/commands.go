package inventory

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands that keep machines, nodes, images, scripts, clusters, plans and runs.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{
		a.importCmd(), a.rackCmd(), a.machineCmd(), a.nodeCmd(), a.imageCmd(), a.scriptCmd(),
		a.clusterCmd(), a.planCmd(), a.runCmd(),
	}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
