// Package health has the commands that show how the fleet and its installation are.
package health

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands of this package.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.statusCmd(), a.doctorCmd(), a.supportCmd()}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
