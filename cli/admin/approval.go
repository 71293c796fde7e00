package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

// approvalCmd shows and changes the policies that demand approval.
func (a commands) approvalCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approval-policy",
		Short: "Demand a second person's approval of work that loses data",
		Long: `An approval policy lets one person destroy data on so many machines of a selection in 24
hours. A rollout over that waits for ingot rollout approve by another person, whatever its
creator asks for. Other work over it is refused: create a rollout of it.

All tokens that a person or a token has made count as one person. Machines count by their
labels and place when the work began, and by those of now.`,
		Example: `  ingot approval-policy set production --select labels.env=prod --machines 5
  ingot approval-policy list`,
	}
	cmd.AddCommand(a.approvalSetCmd(), a.approvalListCmd(), a.approvalDeleteCmd())
	return cmd
}

func (a commands) printPolicy(p *pb.ApprovalPolicy, verb string) error {
	return a.app.Print(p, func() string {
		return verb + " approval policy " + p.GetName() + "\n" +
			command.Table(a.app, view.Style.ApprovalPolicies, p)
	}, p.GetName())
}

func (a commands) approvalSetCmd() *cobra.Command {
	p := &pb.ApprovalPolicy{Harm: pb.ApprovalPolicy_DESTROYS}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make an approval policy or replace it",
		Long: `Make an approval policy, or replace the one of the same name. It holds for work that is
asked for afterwards. You are held to what you replace for another 24 hours.`,
		Example: `  ingot approval-policy set production --select labels.env=prod --machines 5
  ingot approval-policy set everything --machines 0`,
		Args: cobra.ExactArgs(1),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			p.Name = args[0]
			set, err := svc.Rollouts.SetApprovalPolicy(cmd.Context(), &pb.SetApprovalPolicyRequest{Policy: p})
			if err != nil {
				return err
			}
			return a.printPolicy(set, "Set")
		}),
	}
	f := cmd.Flags()
	f.StringVar(&p.Selection, "select", "", "the machines that count, such as site=berlin (default: all)")
	command.Narrows(cmd, "all machines", "select")
	f.Int32Var(&p.Machines, "machines", 0, "machines that one person may destroy data on in 24 hours without approval")
	return cmd
}

func (a commands) approvalListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Rollouts.ListApprovalPolicies,
		(*pb.ApprovalPolicy).GetName, view.Style.ApprovalPolicies).
		Command(a.app, &cobra.Command{
			Short:   "List approval policies",
			Long:    `List all approval policies by name.`,
			Example: "  ingot approval-policy list",
		}, "machines=0", "machines desc")
}

func (a commands) approvalDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete an approval policy",
		Long:    `Delete an approval policy. You are held to it for another 24 hours.`,
		Example: "  ingot approval-policy delete production",
		Args:    cobra.ExactArgs(1),
		RunE: command.Do(
			a.app,
			"Deleted approval policy",
			a.app.Services().Rollouts.DeleteApprovalPolicy,
			(*pb.ApprovalPolicy).GetName,
		),
	}
}
