package inventory

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) runCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Start runs of plans and see them step by step",
		Long:    `A run is the step-by-step record of the plan behind an operation; its id is the operation's.`,
		Example: "  ingot run start m-1 --plan reboot-twice",
	}
	cmd.AddCommand(a.runStartCmd(), a.runGetCmd(), a.runListCmd(), a.runCancelCmd(), a.runWatchCmd(), a.runLogsCmd())
	return cmd
}

func (a commands) runStartCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var req pb.StartRunRequest
	cmd := &cobra.Command{
		Use:   "start MACHINE…",
		Short: "Run a plan on a machine",
		Long: `Run a plan, or the default plan of a type (REPAVE, RMA, REBOOT, UPGRADE, NET_RECONFIG,
JOIN_CLUSTER, or a type of operation), on a machine. Parameters fill the fields that the plan's
steps leave empty.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot run start m-1 --plan reboot-twice
  ingot run start m-1 --type REPAVE --param image_ref=ubuntu-2204`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.app.RunOn(cmd, args, &b, &w, &req) },
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	a.app.Must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	cmd.Flags().StringVar(&req.PlanId, "plan", "", "plan to run")
	cmd.Flags().StringVar(&req.Type, "type", "", "type whose default plan is run")
	cmd.Flags().StringToStringVar(&req.Params, "param", nil, "parameter as key=value; may be given several times")
	cmd.MarkFlagsOneRequired("plan", "type")
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
	command.Fixed(cmd, "type", "REPAVE", "RMA", "REBOOT", "UPGRADE", "NET_RECONFIG", "JOIN_CLUSTER")
	return cmd
}

func (a commands) runGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get RUN",
		Short:             "Show one run with its steps",
		Long:              `Show one run: the state, retries and evidence of each step.`,
		Example:           "  ingot run get op-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE:              command.Show(a.app, a.app.Services().Runs.GetRun, (*pb.Run).GetRunId, view.Style.Run),
	}
}
