package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

var errTooLate = errors.New("the operation succeeded before the request to cancel took effect")

func (a commands) logsCmd() *cobra.Command {
	var noFollow, raw bool
	cmd := &cobra.Command{
		Use:   "logs OPERATION",
		Short: "Print an operation's log and follow it",
		Long: `Print the log of an operation and follow it until the operation ends. --raw writes the
bytes as the machine sent them, without tags; don't point that at a terminal if you don't trust the
machine.`,
		Example: `  ingot logs op-01k
  ingot logs op-01k --no-follow --raw > op.log`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Operation = args[0]
			svc := a.app.Services()
			return a.app.PrintLog(cmd.Context(), raw, follow.LogConfig{
				Open: follow.OperationLog(svc.Operations, args[0], noFollow),
				Complete: func(ctx context.Context) (bool, error) {
					op, err := svc.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: args[0]})
					return noFollow || view.Finished(op), err
				},
			})
		},
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "stop after what is stored")
	cmd.Flags().BoolVar(&raw, "raw", false, "the bytes as they are")
	return cmd
}
