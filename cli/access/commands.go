// Package access has the commands about people: to sign on, and to say who may do what.
package access

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands of an administrator.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.roleCmd(), a.sessionCmd()}
}

// Own returns the commands of everybody about themselves.
func Own(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.loginCmd(), a.logoutCmd(), a.whoamiCmd()}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
