package cli

import "github.com/spf13/cobra"

// adminCommands returns the commands that run Ingot itself.
func adminCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		a.tokenCmd(), a.agentCmd(), a.controllersCmd(), a.siteCmd(), a.identityCmd(), a.bmcCmd(),
		a.sshCmd(), a.maasCmd(), a.webhookCmd(), a.budgetCmd(), a.settleCmd(), a.clearCmd(), a.flagCmd(), a.commandsCmd(),
		a.auditCmd(), a.doctorCmd(), a.serverCmd(),
	}
}
