package admin

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// Commands returns the commands that run Ingot itself.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{
		a.tokenCmd(), a.agentCmd(), a.controllersCmd(), a.siteCmd(), a.identityCmd(), a.bmcCmd(),
		a.sshCmd(), a.maasCmd(), a.webhookCmd(), a.budgetCmd(), a.approvalCmd(), a.settleCmd(), a.clearCmd(),
		a.flagCmd(), a.commandsCmd(),
		a.auditCmd(), a.serverCmd(), a.consoleCmd(),
	}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }
