package setup

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands that set up the command line.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{
		a.setupCmd(), a.configCmd(), a.versionCmd(),
	}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
