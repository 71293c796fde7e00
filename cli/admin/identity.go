package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) identityCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "identity",
		Short:   "How installers prove which machine they run on",
		Long:    `Say what the installers of a site's or a group's machines must prove before they get a certificate.`,
		Example: `  ingot identity require tpm --site berlin`,
	}
	cmd.AddCommand(a.identityRequireCmd())
	return cmd
}

func (a commands) identityRequireCmd() *cobra.Command {
	r := &pb.RequireIdentityRequest{}
	cmd := &cobra.Command{
		Use:   "require network|tpm",
		Short: "Set the least identity level of a site or a group",
		Long: `Set what installers must prove: network is the machine's MAC address on its segment, tpm is
the TPM that the machine is known by. Where tpm is required, a machine whose TPM is not recorded is
refused to be installed; ingot netboot records it. The higher level of a machine's site and group
counts. See ingot machine get for the level that a machine has reached.`,
		Example: `  ingot identity require tpm --site berlin
  ingot identity require network --group lab --comment "no TPMs there"`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(
			cobra.FixedCompletions([]string{"network", "tpm"}, cobra.ShellCompDirectiveNoFileComp),
		),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Level = args[0]
			svc := a.app.Services()
			got, err := svc.Admin.RequireIdentity(cmd.Context(), r)
			if err != nil {
				return err
			}
			text := func() string {
				if got.GetGroup() != "" {
					return fmt.Sprintf("Installers of group %s must prove: %s\n", got.GetGroup(), got.GetLevel())
				}
				return fmt.Sprintf("Installers of site %s must prove: %s\n", got.GetSite(), got.GetLevel())
			}
			return a.app.Print(got, text, got.GetLevel())
		},
	}
	cmd.Flags().StringVar(&r.Site, "site", "", "the site")
	cmd.Flags().StringVar(&r.Group, "group", "", "the group of nodes")
	cmd.Flags().StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	cmd.MarkFlagsMutuallyExclusive("site", "group")
	cmd.MarkFlagsOneRequired("site", "group")
	return cmd
}
