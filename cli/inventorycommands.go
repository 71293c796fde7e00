package cli

import "github.com/spf13/cobra"

// inventoryCommands returns the commands that keep machines, nodes, images, scripts, clusters, plans and runs.
func inventoryCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		a.importCmd(), a.listCmd(), a.machineCmd(), a.nodeCmd(), a.imageCmd(), a.scriptCmd(),
		a.clusterCmd(), a.planCmd(), a.runCmd(),
	}
}
