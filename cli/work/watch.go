package work

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) watchCmd() *cobra.Command {
	var filter string
	var beginning bool
	cmd := &cobra.Command{
		Use:   "watch [MACHINE | OPERATION]",
		Short: "Stream operation events, or come back to one operation",
		Long: `Stream the events of all operations, or of one machine's, until interrupted; with -o json one JSON document a
line. Given an operation (op-…) instead, show it live until it ends, as the command that started it does. A lost
connection is made again and nothing is missed.`,
		Example: `  ingot watch
  ingot watch m-1
  ingot watch op-01k
  ingot watch --filter type=REIMAGE -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject := strings.Join(args, "")
			if strings.HasPrefix(subject, "op-") {
				if err := a.attach(cmd, subject); !command.NotOperation(err, subject) {
					return err
				}
			}
			a.app.Subject.Machine = subject
			return a.watchFleet(cmd, command.JoinFilter("machine_id", subject, "", filter), beginning)
		},
	}
	cmd.Flags().StringVar(&filter, "filter", "", "terms such as type=REBOOT,phase=FAILED")
	cmd.Flags().BoolVar(&beginning, "from-beginning", false, "replay all stored events first")
	return cmd
}

// attach shows an operation that was started before.
func (a commands) attach(cmd *cobra.Command, id string) error {
	a.app.Subject.Operation = id
	svc := a.app.Services()
	op, err := svc.Operations.GetOperation(cmd.Context(), &pb.GetOperationRequest{OperationId: id})
	if err != nil {
		return err
	}
	a.app.Subject.Machine = op.GetMachineId()
	before, err := command.MachineBefore(cmd.Context(), svc, op.GetMachineId())
	if err != nil {
		return err
	}
	return a.app.Show(cmd.Context(), svc, op, before)
}

func (a commands) watchFleet(cmd *cobra.Command, filter string, beginning bool) error {
	svc := a.app.Services()
	// A wrong address, token or filter is found here, before the watch starts to be patient.
	_, err := svc.Operations.ListOperations(cmd.Context(), &pb.ListOperationsRequest{Filter: filter, PageSize: 1})
	if err != nil {
		return err
	}
	return follow.Watch(cmd.Context(), follow.WatchConfig[*pb.OperationEvent]{
		Source: follow.OperationEvents(svc.Operations, filter, beginning),
		Clock:  a.app.Config.Clock,
		Lost:   func() { a.app.Note("! connection lost, retrying…") },
	}, func(ev *pb.OperationEvent) error {
		return a.app.Stream(ev, func() string { return a.app.Style().WatchLine(ev) }, ev.GetSnapshot().GetOperationId())
	})
}

func (a commands) cancelCmd() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "cancel OPERATION",
		Short: "Ask an operation to stop",
		Long: `Ask an active operation to stop at its next safe point. What has been done stays done. With --wait, follow it
until it has ended: exit code 0 when it was canceled, 4 when it succeeded before the request took effect.`,
		Example: `  ingot cancel op-01k
  ingot cancel op-01k --wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.cancelOp(cmd, args[0], wait) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the operation until it has ended")
	return cmd
}

func (a commands) cancelOp(cmd *cobra.Command, id string, wait bool) error {
	a.app.Subject.Operation = id
	svc := a.app.Services()
	op, err := svc.Machines.CancelOperation(cmd.Context(), &pb.CancelOperationRequest{OperationId: id})
	if err != nil {
		return err
	}
	if wait && !view.Finished(op) {
		if op, err = a.app.Live(cmd.Context(), svc, op, nil); err != nil {
			return err
		}
	}
	if !wait || a.app.Document() || op.GetPhase() == pb.Operation_CANCELED {
		err = a.app.Print(op, func() string { return a.app.Style().OperationLine(op) }, id)
	}
	if err != nil || !wait {
		return err
	}
	return canceledResult(op)
}

// canceledResult returns the result of a request to cancel an operation.
func canceledResult(op *pb.Operation) error {
	switch op.GetPhase() {
	case pb.Operation_CANCELED:
		return nil
	case pb.Operation_SUCCEEDED:
		return &command.ExitError{Code: command.ExitRefused, Err: errTooLate}
	}
	return command.ExitByPhase(op.GetPhase())
}
