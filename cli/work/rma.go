package work

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) rmaCmd() *cobra.Command {
	var w command.WorkFlags
	var back bool
	cmd := &cobra.Command{
		Use:   "rma MACHINE",
		Short: "Take a machine out of service for return or replacement, or back",
		Long: `Flag a machine in phase MAINTENANCE for return or replacement. It is BLOCKED from then on:
nothing runs on it but ingot rma MACHINE --return, which takes the flag off again.` + command.WaitHelp,
		Example:           "  ingot rma m-1\n  ingot rma m-1 --return",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &pb.StartRunRequest{MachineId: args[0], Type: "RMA"}
			if back {
				req.PlanId = "rma-return"
			}
			return a.StartRun(cmd, &w, req)
		},
	}
	w.Register(cmd)
	a.Must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	cmd.Flags().BoolVar(&back, "return", false, "take the flag off: the machine is back")
	return cmd
}
