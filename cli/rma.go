package cli

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) rmaCmd() *cobra.Command {
	var w workFlags
	var back bool
	cmd := &cobra.Command{
		Use:   "rma MACHINE",
		Short: "Take a machine out of service for return or replacement, or back",
		Long: `Flag a machine in phase MAINTENANCE for return or replacement. It is BLOCKED from then on:
nothing runs on it but ingot rma MACHINE --return, which takes the flag off again.` + waitHelp,
		Example:           "  ingot rma m-1\n  ingot rma m-1 --return",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &pb.StartRunRequest{MachineId: args[0], Type: "RMA"}
			if back {
				req.PlanId = "rma-return"
			}
			return a.startRun(cmd, &w, req)
		},
	}
	w.register(cmd)
	a.must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	cmd.Flags().BoolVar(&back, "return", false, "take the flag off: the machine is back")
	return cmd
}
