package work

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) opsCmd() *cobra.Command {
	var f command.FilterFlags
	cmd := &cobra.Command{
		Use:     "ops",
		Aliases: []string{"operations"},
		Short:   "List operations, newest first",
		Long:    `List operations, newest first. ingot ops get shows one of them in full.`,
		Example: `  ingot ops --machine m-1
  ingot ops --phase running -o json
  ingot ops get op-01k`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listOps(cmd, &f) },
	}
	f.Register(a.app, cmd, 100)
	cmd.AddCommand(a.opsGetCmd())
	return cmd
}

func (a commands) listOps(cmd *cobra.Command, f *command.FilterFlags) error {
	svc, err := a.app.Services()
	if err != nil {
		return err
	}
	ops, err := command.Pages(f.Limit, func(size int32, token string) ([]*pb.Operation, string, error) {
		r, err := svc.Operations.ListOperations(cmd.Context(),
			&pb.ListOperationsRequest{Filter: f.String(), PageSize: size, PageToken: token})
		return r.GetOperations(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return a.app.Print(&pb.ListOperationsResponse{Operations: ops}, func() string {
		return a.app.Style().Operations(ops, a.app.Wide(), a.app.Now()).String()
	}, command.Names(ops, (*pb.Operation).GetOperationId)...)
}

func (a commands) opsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get OPERATION",
		Short:             "Show one operation",
		Long:              `Show one operation in full: phase, stage, why it waits, evidence and error.`,
		Example:           `  ingot ops get op-01k -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Operation = args[0]
			svc, err := a.app.Services()
			if err != nil {
				return err
			}
			op, err := svc.Operations.GetOperation(cmd.Context(), &pb.GetOperationRequest{OperationId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(op, func() string { return a.app.Style().Operation(op, a.app.Now()) }, op.GetOperationId())
		},
	}
}
