package command

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// validate makes a call that only validates, and prints what it would start. A refusal is that of the call itself.
func (a *App) validate(cmd *cobra.Command, args []string, machine string, w *WorkFlags, call StartOn) error {
	a.Subject.Machine = machine
	seconds, err := w.StepSeconds()
	if err != nil {
		return err
	}
	svc := a.Services()
	op, err := call(cmd.Context(), svc, machine, a.Request(w), seconds)
	if err != nil {
		return err
	}
	begin := Line(cmd, args)
	return a.Print(op, func() string { return view.Validated(op, op.GetOperationId(), begin) }, op.GetOperationId())
}

// validateRun is validate for a run of a plan.
func (a *App) validateRun(cmd *cobra.Command, args []string, w *WorkFlags, req *pb.StartRunRequest) error {
	a.Subject.Machine = req.GetMachineId()
	svc := a.Services()
	req.RequestId, req.ValidateOnly = a.Request(w), true
	run, err := svc.Runs.StartRun(cmd.Context(), req)
	if err != nil {
		return err
	}
	begin := Line(cmd, args)
	return a.Print(run, func() string { return view.Validated(run, run.GetRunId(), begin) }, run.GetRunId())
}

// validateRollout is validate for work on several machines.
func (a *App) validateRollout(
	cmd *cobra.Command, args []string, svc *Services, req *pb.CreateRolloutRequest,
) (*pb.Rollout, error) {
	ro, err := svc.Rollouts.CreateRollout(cmd.Context(), req)
	if err != nil {
		return nil, err
	}
	begin := Line(cmd, args)
	return ro, a.Print(ro, func() string { return view.ValidatedRollout(ro, begin) }, ro.GetRolloutId())
}
