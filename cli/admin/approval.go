package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
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
			a.app.Style().ApprovalPolicies([]*pb.ApprovalPolicy{p}).String()
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
	f.Int32Var(&p.Machines, "machines", 0, "machines that one person may destroy data on in 24 hours without approval")
	return cmd
}

func (a commands) approvalListCmd() *cobra.Command {
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List approval policies",
		Long:    `List all approval policies by name.`,
		Example: "  ingot approval-policy list",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			all, err := command.Pages(0, func(size int32, token string) ([]*pb.ApprovalPolicy, string, error) {
				r, err := svc.Rollouts.ListApprovalPolicies(cmd.Context(), &pb.ListApprovalPoliciesRequest{PageSize: size,
					PageToken: token, Filter: narrow.Filter, OrderBy: narrow.OrderBy})
				return r.GetPolicies(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return a.app.Print(&pb.ListApprovalPoliciesResponse{Policies: all},
				func() string { return a.app.Style().ApprovalPolicies(all).String() },
				command.Names(all, (*pb.ApprovalPolicy).GetName)...)
		}),
	}
	narrow.Register(cmd, "machines=0", "machines desc")
	return cmd
}

func (a commands) approvalDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete an approval policy",
		Long:    `Delete an approval policy. You are held to it for another 24 hours.`,
		Example: "  ingot approval-policy delete production",
		Args:    cobra.ExactArgs(1),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			gone, err := svc.Rollouts.DeleteApprovalPolicy(cmd.Context(),
				&pb.DeleteApprovalPolicyRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(gone, func() string { return "Deleted approval policy " + gone.GetName() + "\n" },
				gone.GetName())
		}),
	}
}
