package cli

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) opsCmd() *cobra.Command {
	var f filterFlags
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
	f.register(a, cmd, 100)
	cmd.AddCommand(a.opsGetCmd())
	return cmd
}

func (a *app) listOps(cmd *cobra.Command, f *filterFlags) error {
	svc, err := a.services()
	if err != nil {
		return err
	}
	ops, err := pages(f.limit, func(size int32, token string) ([]*pb.Operation, string, error) {
		r, err := svc.operations.ListOperations(cmd.Context(),
			&pb.ListOperationsRequest{Filter: f.String(), PageSize: size, PageToken: token})
		return r.GetOperations(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.GetOperationId()
	}
	return a.print(&pb.ListOperationsResponse{Operations: ops}, func() string {
		return a.style().Operations(ops, a.wide(), a.now()).String()
	}, names...)
}

func (a *app) opsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get OPERATION",
		Short:             "Show one operation",
		Long:              `Show one operation in full: phase, stage, why it waits, evidence and error.`,
		Example:           `  ingot ops get op-01k -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.subject.operation = args[0]
			svc, err := a.services()
			if err != nil {
				return err
			}
			op, err := svc.operations.GetOperation(cmd.Context(), &pb.GetOperationRequest{OperationId: args[0]})
			if err != nil {
				return err
			}
			return a.print(op, func() string { return a.style().Operation(op, a.now()) }, op.GetOperationId())
		},
	}
}
