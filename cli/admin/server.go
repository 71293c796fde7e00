package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) serverCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "About the controller",
		Long:    `About the controller that answers.`,
		Example: "  ingot server info",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "info",
		Short: "Show which controller answers and what it cannot do yet",
		Long: `Show the version, the id, the CA hash and the clock of the controller that answers, and
what it cannot do yet.`,
		Example: "  ingot server info -o json",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			i, err := svc.Admin.GetServerInfo(cmd.Context(), &pb.GetServerInfoRequest{})
			if err != nil {
				return err
			}
			return a.app.Print(i, func() string { return a.app.Style().Server(i) }, i.GetControllerId())
		}),
	}, a.freezeCmd(), a.thawCmd())
	return cmd
}

func (a commands) thawCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "Lift the freeze of the fleet",
		Long: `Lift the freeze that "ingot server freeze" or "ingot-controller after-restore" puts on the
fleet. Until then nothing is started on a machine; after a restore, what the backup forgot must not
be done again. Look first: ingot server info says how many agents have not been heard since, and
ingot agent list which.`,
		Example: `  ingot server thaw --comment "compared with the change log of Tuesday"`,
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			i, err := svc.Admin.ThawFleet(cmd.Context(), &pb.ThawFleetRequest{Comment: comment})
			if err != nil {
				return err
			}
			return a.app.Print(i, func() string { return "The fleet is thawed\n" }, i.GetControllerId())
		}),
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}
