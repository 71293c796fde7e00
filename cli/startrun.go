package cli

import (
	"context"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/spf13/cobra"
)

func (a *app) printRun(r *pb.Run) error {
	return a.print(r, func() string { return a.style().Run(r) }, r.GetRunId())
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

// runsPlan makes a command that runs a plan, or the default plan of a type, on a machine.
func (a *app) runsPlan(cmd *cobra.Command, kind, plan string) *cobra.Command {
	var w workFlags
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = completeAt(a.completeMachines())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.startRun(cmd, &w, &pb.StartRunRequest{MachineId: args[0], Type: kind, PlanId: plan})
	}
	w.register(cmd)
	a.must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	return cmd
}
