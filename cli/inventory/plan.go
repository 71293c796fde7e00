package inventory

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/ids"
)

func (a commands) planCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "List, show, create and delete plans",
		Long:    `A plan is an ordered list of steps. Once a run has used it, it never changes.`,
		Example: "  ingot plan list",
	}
	cmd.AddCommand(a.planListCmd(), a.planGetCmd(), a.planCreateCmd(), a.planDeleteCmd())
	return cmd
}

func (a commands) planListCmd() *cobra.Command {
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List plans",
		Long:    `List the built-in plans and your own.`,
		Example: "  ingot plan list -o yaml",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			all, err := command.Pages(0, func(size int32, token string) ([]*pb.Plan, string, error) {
				r, err := svc.Plans.ListPlans(
					cmd.Context(),
					&pb.ListPlansRequest{PageSize: size, PageToken: token, Filter: narrow.Filter, OrderBy: narrow.OrderBy},
				)
				return r.GetPlans(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			for _, p := range all {
				names = append(names, p.GetPlanId())
			}
			return a.app.Print(
				&pb.ListPlansResponse{Plans: all},
				func() string { return a.app.Style().Plans(all).String() },
				names...)
		}),
	}
	narrow.Register(cmd, "plan_id=re*", "plan_id desc")
	return cmd
}

func (a commands) planGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get PLAN",
		Short:             "Show one plan",
		Long:              `Show one plan with its steps.`,
		Example:           "  ingot plan get reboot",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompletePlans()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			p, err := svc.Plans.GetPlan(cmd.Context(), &pb.GetPlanRequest{PlanId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(p, func() string { return a.app.Style().Plan(p) }, p.GetPlanId())
		}),
	}
}

func (a commands) planDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete PLAN",
		Short: "Delete a plan that no run has used",
		Long: `Delete a plan of your own. One that a run has used stays, so that the run's record can be
read; so does one that a machine or an open rollout names.`,
		Example:           "  ingot plan delete reboot-twice",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompletePlans()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			p, err := svc.Plans.DeletePlan(cmd.Context(), &pb.DeletePlanRequest{PlanId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(p, func() string { return "deleted " + p.GetPlanId() + "\n" }, p.GetPlanId())
		}),
	}
}

func (a commands) planCreateCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Store a plan",
		Long: `Store a plan from a YAML or JSON file with the fields of Plan. Without a plan_id in the
file one is made. The same plan under the same id may be stored again; another one under a used id
is refused.`,
		Example: `  ingot plan create -f plan.yaml

  # plan.yaml
  plan_id: reboot-twice
  display_name: Reboot twice
  steps:
    - {name: first, reboot: {mode: graceful}, timeout_seconds: 600}
    - {name: second, reboot: {}}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan := &pb.Plan{}
			if err := a.app.ReadMessage(file, plan); err != nil {
				return err
			}
			if plan.GetPlanId() == "" {
				plan.PlanId = ids.New(ids.Plan) // made here, so that a repeated call stores one plan
			}
			svc, err := a.app.Services()
			if err != nil {
				return err
			}
			got, err := svc.Plans.CreatePlan(cmd.Context(), &pb.CreatePlanRequest{Plan: plan})
			if err != nil {
				return err
			}
			return a.app.Print(got, func() string { return a.app.Style().Plan(got) }, got.GetPlanId())
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file; - is standard input")
	a.app.Must(cmd.MarkFlagRequired("file"))
	return cmd
}
