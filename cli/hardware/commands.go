package hardware

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

type commands struct{ app *command.App }

// Commands are those of a machine's hardware.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.testsCmd(), a.healthCmd(), a.identifyCmd()}
}

func (a commands) testsCmd() *cobra.Command {
	var history int32
	cmd := &cobra.Command{
		Use:   "tests MACHINE",
		Short: "Show what tests of the machine's hardware have found",
		Long: `Show the last test of the machine's hardware: what was measured of each part, and what has failed.
Each value is compared with the norm, the median of at least three other machines of its model; one far below it is a
warning.
ingot test MACHINE makes a test.`,
		Example:           "  ingot machine tests m-1\n  ingot machine tests m-1 --history 9 -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			a.app.Subject.Machine = args[0]
			all, err := svc.Machines.GetHardwareTests(cmd.Context(),
				&pb.GetHardwareTestsRequest{MachineId: args[0], History: history})
			if err != nil {
				return err
			}
			return a.app.Print(all, func() string { return Tests(a.app.Style(), all) }, all.GetMachineId())
		}),
	}
	cmd.Flags().Int32Var(&history, "history", 0, "how many tests before the last one to show, at most 49")
	return cmd
}

func (a commands) healthCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "health MACHINE",
		Short: "Show what the machine's BMC says of its hardware: faults, sensors and event log",
		Long: `Show what the machine's BMC has said last of its hardware: which parts are not well, the newest events
of its log, and its sensors. The site's agent reads them over Redfish or IPMI every ten minutes. Machines with a fault
have the condition HardwareFault: ingot list --filter conditions.HardwareFault=true.`,
		Example:           "  ingot machine health m-1\n  ingot machine health m-1 -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: command.Show(
			a.app,
			a.app.Services().Machines.GetHardwareHealth,
			(*pb.HardwareHealth).GetMachineId,
			Health,
		),
	}
}

func (a commands) identifyCmd() *cobra.Command {
	var off bool
	cmd := &cobra.Command{
		Use:   "identify MACHINE…",
		Short: "Light the identify light of machines, or turn it off",
		Long: `Light the machine's identify light through its BMC, for the person who goes to it, or turn it off with --off.
It works whatever else the machine does. ingot machine health MACHINE shows what the BMC has read back.`,
		Example: "  ingot machine identify m-1\n  ingot machine identify --select rack=r42 --off",
	}
	cmd.Flags().BoolVar(&off, "off", false, "turn it off")
	return a.app.ForEach(cmd, "", func(ctx context.Context, svc *command.Services, id string) error {
		h, err := svc.Machines.SetIdentifyLight(ctx, &pb.SetIdentifyLightRequest{MachineId: id, Lit: !off})
		if err != nil {
			return err
		}
		return a.app.Print(h, func() string {
			return "The identify light of " + id + " is ordered " + h.GetIdentifyLightOrdered() +
				".\nNext: ingot machine health " + id + "   shows when the BMC says so\n"
		}, h.GetMachineId())
	})
}
