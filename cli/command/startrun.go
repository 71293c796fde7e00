package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// PrintRun prints one run.
func (a *App) PrintRun(r *pb.Run) error {
	return a.Print(r, func() string { return a.Style().Run(r) }, r.GetRunId())
}

// StartRun starts a run of a plan and shows it.
func (a *App) StartRun(cmd *cobra.Command, w *WorkFlags, req *pb.StartRunRequest) error {
	a.Subject.Machine = req.GetMachineId()
	ctx := cmd.Context()
	svc := a.Services()
	before, err := MachineBefore(ctx, svc, req.GetMachineId())
	if err != nil {
		return err
	}
	req.RequestId = a.Request(w)
	run, err := svc.Runs.StartRun(ctx, req)
	if err != nil {
		return err
	}
	a.Subject.Operation = run.GetRunId()
	if !w.Waits() {
		return a.Print(run, func() string { return "Run: " + run.GetRunId() + " (" + run.GetPhase().String() + ")\n" },
			run.GetRunId())
	}
	return a.showRun(ctx, svc, run.GetRunId(), before)
}

// showRun shows the operation behind the run, and as a document the run.
func (a *App) showRun(ctx context.Context, svc *Services, id string, before *pb.Machine) error {
	op, err := svc.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: id})
	if err != nil {
		return err
	}
	if view.Finished(op) {
		a.alreadyOver(op)
	} else if op, err = a.Live(ctx, svc, op, before); err != nil {
		return err
	}
	if a.Document() {
		run, err := svc.Runs.GetRun(ctx, &pb.GetRunRequest{RunId: id})
		if err != nil {
			return err
		}
		if err := a.PrintRun(run); err != nil {
			return err
		}
	}
	a.hintForResult(op)
	return ExitByPhase(op.GetPhase())
}

// RunOn starts a run on the one machine that is named, or a rollout of the same over several.
func (a *App) RunOn(cmd *cobra.Command, args []string, b *Bulk, w *WorkFlags, req *pb.StartRunRequest) error {
	if machine, ok := b.Single(args); ok {
		req.MachineId = machine
		if b.ValidateOnly {
			return a.validateRun(cmd, args, w, req)
		}
		return a.StartRun(cmd, w, req)
	}
	if machine, ok := b.Targets.Single(args); ok {
		b.alone = &aloneCall{func(ctx context.Context, svc *Services, id string) (view.Work, error) {
			r := proto.CloneOf(req)
			r.MachineId, r.RequestId, r.ValidateOnly = machine, id, true
			return svc.Runs.StartRun(ctx, r)
		}}
	}
	return a.Roll(cmd, b, w, args,
		&pb.RolloutSpec{Type: req.GetType(), PlanId: req.GetPlanId(), Params: req.GetParams()})
}

// RunsPlan makes a command that runs a plan, or the default plan of a type, on a machine.
func (a *App) RunsPlan(cmd *cobra.Command, kind, plan string) *cobra.Command {
	var w WorkFlags
	var b Bulk
	cmd.Use = strings.Replace(cmd.Use, "MACHINE", "MACHINE…", 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.RunOn(cmd, args, &b, &w, &pb.StartRunRequest{Type: kind, PlanId: plan})
	}
	w.Register(cmd)
	b.Register(a, cmd)
	a.Must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	return cmd
}
