package cli

import "github.com/spf13/cobra"

// setupCommands returns the commands that set up the command line.
func setupCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		a.configCmd(), a.versionCmd(),
	}
}
