package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) controllersCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Admin.ListControllers, (*pb.Controller).GetControllerId, view.Style.Controllers)
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "controllers",
		Short: "List the controllers of this installation",
		Long: `List the controllers that work on one database, the newest first: where each runs, its
version, how many agents are connected to it, which of them keeps the queue of jobs (LEADS), which
one has answered (ANSWERING), and whether it is about to stop (DRAINING). Each start of a controller
is another one.

One that was killed is SERVING until its lease has run out; its agents and its work are elsewhere
long before.`,
		Example: "  ingot controllers\n  ingot controllers --all",
	}, "version!=v9", "sessions desc")
	cmd.Flags().BoolVar(&l.Request.All, "all", false, "those of the last seven days that have ended, too")
	return cmd
}
