// Package machines has the commands that list, watch and count machines.
package machines

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns list and count.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.listCmd(), a.countCmd()}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ *command.App }
