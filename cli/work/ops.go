package work

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) opsCmd() *cobra.Command {
	var f command.FilterFlags
	l := command.ListOf(a.app.Services().Operations.ListOperations, (*pb.Operation).GetOperationId, view.Style.Operations)
	l.Prepare = func([]string) error {
		l.Limit, l.Request.Filter = f.Limit, f.String()
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Use:     "ops",
		Aliases: []string{"operations"},
		Short:   "List operations, newest first",
		Long:    `List operations, newest first. ingot ops get shows one of them in full.`,
		Example: `  ingot ops --machine m-1
  ingot ops --phase running -o json
  ingot ops get op-01k`,
	}, "", "")
	f.Register(a.app, cmd, 100)
	cmd.AddCommand(a.opsGetCmd())
	return cmd
}

func (a commands) opsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get OPERATION",
		Short:             "Show one operation",
		Long:              `Show one operation in full: phase, stage, why it waits, evidence and error.`,
		Example:           `  ingot ops get op-01k -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE: command.Show(
			a.app,
			a.app.Services().Operations.GetOperation,
			(*pb.Operation).GetOperationId,
			view.Style.Operation,
		),
	}
}
