package inventory

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
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
	return command.ListOf(a.app.Services().Plans.ListPlans, (*pb.Plan).GetPlanId, view.Style.Plans).
		Command(a.app, &cobra.Command{
			Short:   "List plans",
			Long:    `List the built-in plans and your own.`,
			Example: "  ingot plan list -o yaml",
		}, "plan_id=re*", "plan_id desc")
}

func (a commands) planGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get PLAN",
		Short:             "Show one plan",
		Long:              `Show one plan with its steps.`,
		Example:           "  ingot plan get reboot",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompletePlans()),
		RunE:              command.Show(a.app, a.app.Services().Plans.GetPlan, (*pb.Plan).GetPlanId, view.Style.Plan),
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
		RunE:              command.Do(a.app, "Deleted", a.app.Services().Plans.DeletePlan, (*pb.Plan).GetPlanId),
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
			svc := a.app.Services()
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
