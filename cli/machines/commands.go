// Package machines has the commands that list, watch and count machines, and those of saved views.
package machines

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns list, find, count and view.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.listCmd(), a.findCmd(), a.countCmd(), a.viewCmd()}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
