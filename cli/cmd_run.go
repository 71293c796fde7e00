package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a *app) runCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Start runs of plans and see them step by step",
		Long:    `A run is the step-by-step record of the plan behind an operation; its id is the operation's.`,
		Example: "  ingot run start m-1 --plan reboot-twice",
	}
	cmd.AddCommand(a.runStartCmd(), a.runGetCmd(), a.runListCmd(), a.runCancelCmd(), a.runWatchCmd(), a.runLogsCmd())
	return cmd
}

func (a *app) printRun(r *pb.Run) error {
	return a.print(r, func() string { return a.style().Run(r) }, r.GetRunId())
}

func (a *app) runStartCmd() *cobra.Command {
	var w workFlags
	var req pb.StartRunRequest
	cmd := &cobra.Command{
		Use:   "start MACHINE",
		Short: "Run a plan on a machine",
		Long: `Run a plan, or the default plan of a type (REPAVE, RMA, REBOOT, UPGRADE, NET_RECONFIG,
JOIN_CLUSTER, or a type of operation), on a machine. Parameters fill the fields that the plan's
steps leave empty.` + waitHelp,
		Example: `  ingot run start m-1 --plan reboot-twice
  ingot run start m-1 --type REPAVE --param image_ref=ubuntu-2204`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.MachineId = args[0]
			return a.startRun(cmd, &w, &req)
		},
	}
	w.register(cmd)
	a.must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	cmd.Flags().StringVar(&req.PlanId, "plan", "", "plan to run")
	cmd.Flags().StringVar(&req.Type, "type", "", "type whose default plan is run")
	cmd.Flags().StringToStringVar(&req.Params, "param", nil, "parameter as key=value; may be given several times")
	cmd.MarkFlagsOneRequired("plan", "type")
	a.must(cmd.RegisterFlagCompletionFunc("plan", a.completePlans()))
	fixed(cmd, "type", "REPAVE", "RMA", "REBOOT", "UPGRADE", "NET_RECONFIG", "JOIN_CLUSTER")
	return cmd
}

func (a *app) startRun(cmd *cobra.Command, w *workFlags, req *pb.StartRunRequest) error {
	a.subject.machine = req.GetMachineId()
	ctx := cmd.Context()
	svc, err := a.services()
	if err != nil {
		return err
	}
	before, err := machineBefore(ctx, svc, req.GetMachineId())
	if err != nil {
		return err
	}
	req.RequestId = a.request(w)
	run, err := svc.runs.StartRun(ctx, req)
	if err != nil {
		return err
	}
	a.subject.operation = run.GetRunId()
	if !w.waits() {
		return a.print(run, func() string { return "Run: " + run.GetRunId() + " (" + run.GetPhase().String() + ")\n" },
			run.GetRunId())
	}
	return a.showRun(ctx, svc, run.GetRunId(), before)
}

// showRun shows the operation behind the run, and as a document the run.
func (a *app) showRun(ctx context.Context, svc *services, id string, before *pb.Machine) error {
	op, err := svc.operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: id})
	if err != nil {
		return err
	}
	if view.Finished(op) {
		a.alreadyOver(op)
	} else if op, err = a.live(ctx, svc, op, before); err != nil {
		return err
	}
	if a.document() {
		run, err := svc.runs.GetRun(ctx, &pb.GetRunRequest{RunId: id})
		if err != nil {
			return err
		}
		if err := a.printRun(run); err != nil {
			return err
		}
	}
	a.hintForResult(op)
	return exitByPhase(op.GetPhase())
}

func (a *app) runGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get RUN",
		Short:             "Show one run with its steps",
		Long:              `Show one run: the state, retries and evidence of each step.`,
		Example:           "  ingot run get op-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.subject.operation = args[0]
			svc, err := a.services()
			if err != nil {
				return err
			}
			run, err := svc.runs.GetRun(cmd.Context(), &pb.GetRunRequest{RunId: args[0]})
			if err != nil {
				return err
			}
			return a.printRun(run)
		},
	}
}
