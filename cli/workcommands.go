package cli

import "github.com/spf13/cobra"

// workCommands returns the commands that work on machines and watch it.
func workCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		a.rebootCmd(), a.powerCmd(), a.reimageCmd(), a.netbootCmd(), a.reconfigureCmd(), a.enterCmd(), a.exitCmd(),
		a.onboardCmd(), a.decommissionCmd(), a.workflowCmd(), a.rolloutCmd(), a.rmaCmd(),
		a.opsCmd(), a.watchCmd(), a.logsCmd(), a.cancelCmd(), a.whyCmd(), a.timelineCmd(),
	}
}
