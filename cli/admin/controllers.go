package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) controllersCmd() *cobra.Command {
	var all bool
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "List the controllers of this installation",
		Long: `List the controllers that work on one database, the newest first: where each runs, its
version, how many agents are connected to it, which of them keeps the queue of jobs (LEADS), which
one has answered (ANSWERING), and whether it is about to stop (DRAINING). Each start of a controller
is another one.

One that was killed is SERVING until its lease has run out; its agents and its work are elsewhere
long before.`,
		Example: "  ingot controllers\n  ingot controllers --all",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			list, err := command.Pages(0, func(size int32, page string) ([]*pb.Controller, string, error) {
				r, err := svc.Admin.ListControllers(
					cmd.Context(),
					&pb.ListControllersRequest{
						All:       all,
						PageSize:  size,
						PageToken: page,
						Filter:    narrow.Filter,
						OrderBy:   narrow.OrderBy,
					},
				)
				return r.GetControllers(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return a.app.Print(&pb.ListControllersResponse{Controllers: list}, func() string {
				return a.app.Style().Controllers(list, a.app.Now()).String()
			}, command.Names(list, (*pb.Controller).GetControllerId)...)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "those of the last seven days that have ended, too")
	narrow.Register(cmd, "version!=v9", "sessions desc")
	return cmd
}
