package cli

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// filterFlags build the filter of a list of operations or runs.
type filterFlags struct {
	machine, opType, phase, filter string
	limit                          int
}

func (f *filterFlags) register(a *app, cmd *cobra.Command, limit int) {
	cmd.Flags().StringVar(&f.machine, "machine", "", "only this machine")
	cmd.Flags().StringVar(&f.opType, "type", "", "only this type, such as REBOOT")
	cmd.Flags().StringVar(&f.phase, "phase", "", "only this phase, such as RUNNING")
	cmd.Flags().StringVar(&f.filter, "filter", "", "further terms, such as created_after=2026-01-01T00:00:00Z")
	if limit >= 0 {
		cmd.Flags().IntVar(&f.limit, "limit", limit, "at most so many, newest first; 0 is all")
	}
	a.must(cmd.RegisterFlagCompletionFunc("machine", a.completeMachines()))
	fixed(cmd, "phase", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")
}

func (f *filterFlags) String() string {
	return joinFilter("machine_id", f.machine, "type", strings.ToUpper(f.opType), "phase", strings.ToUpper(f.phase), "",
		f.filter)
}

// joinFilter joins key=value terms and leaves out those without a value; without a key the value is a term.
func joinFilter(pairs ...string) string {
	var terms []string
	for i := 0; i+1 < len(pairs); i += 2 {
		switch {
		case pairs[i+1] == "":
		case pairs[i] == "":
			terms = append(terms, pairs[i+1])
		default:
			terms = append(terms, pairs[i]+"="+pairs[i+1])
		}
	}
	return strings.Join(terms, ",")
}

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
