package work

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) rmaCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var back bool
	cmd := &cobra.Command{
		Use:   "rma MACHINE…",
		Short: "Take a machine out of service for return or replacement, or back",
		Long: `Flag a machine in phase MAINTENANCE for return or replacement. It is BLOCKED from then on:
nothing runs on it but ingot rma MACHINE --return, which takes the flag off again.` +
			command.TargetsHelp + command.WaitHelp,
		Example: "  ingot rma m-1\n  ingot rma m-1 --return",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &pb.StartRunRequest{Type: "RMA"}
			if back {
				req.PlanId = "rma-return"
			}
			return a.app.RunOn(cmd, args, &b, &w, req)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	a.app.Must(cmd.Flags().MarkHidden("step-timeout")) // a run takes its limits from the plan
	cmd.Flags().BoolVar(&back, "return", false, "take the flag off: the machine is back")
	return cmd
}
