package work

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) rebootCmd() *cobra.Command {
	var w command.WorkFlags
	var mode, plan string
	cmd := &cobra.Command{
		Use:   "reboot MACHINE",
		Short: "Reboot a machine",
		Long: `Reboot a machine in phase READY or MAINTENANCE. It counts as done when the machine has come back with another
boot id, not when it was told to reboot.` + command.WaitHelp,
		Example: `  ingot reboot m-1
  ingot reboot m-1 --mode force --request-id fix-1234`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{
						MachineId: args[0], RequestId: id, Mode: mode, PlanId: plan, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "graceful (default), force, or bmc to power-cycle it from outside")
	cmd.Flags().StringVar(&plan, "plan", "", "plan to run instead of the default one")
	command.Fixed(cmd, "mode", "graceful", "force", "bmc")
	a.Must(cmd.RegisterFlagCompletionFunc("plan", a.CompletePlans()))
	return cmd
}

func (a commands) reimageCmd() *cobra.Command {
	var w command.WorkFlags
	var seed command.SeedFlags
	var image, plan, path string
	cmd := &cobra.Command{
		Use:   "reimage MACHINE",
		Short: "Write an OS image; all data on the target disk is lost",
		Long: `Write an OS image to a machine. All data on its target disk is lost, so the machine must be in maintenance:
ingot enter-maintenance MACHINE.

--path says how the machine gets into the installer. auto takes what works: kexec from the running system, the
firmware's next boot, or the BMC. Any other fails instead of falling back.

The image may be as its vendor ships it: the installer adds the agent, and for cloud-init ssh keys, user-data and a
network configuration. These are kept sealed, and shown nowhere.` + command.WaitHelp,
		Example: `  ingot reimage m-1 --image ubuntu-2204
  ingot reimage m-1 --image debian-13 --ssh-key ~/.ssh/id_ed25519.pub --user-data web.yaml
  ingot reimage m-1 --image ubuntu-2204 --path bmc
  ingot reimage m-1 --image ubuntu-2204 --request-id deploy-v2.1 --no-wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := seed.Read(a.App)
			if err != nil {
				return err
			}
			return a.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{
						MachineId: args[0], RequestId: id, ImageRef: image, PlanId: plan, Path: path, TimeoutSeconds: secs,
						Seed: given,
					})
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&image, "image", "", "image to write (default: the machine's or the server's)")
	cmd.Flags().StringVar(&plan, "plan", "", "plan to run instead of the default one")
	cmd.Flags().StringVar(&path, "path", "", "auto (default), kexec, bootnext or bmc")
	seed.Register(cmd)
	command.Fixed(cmd, "path", "auto", "kexec", "bootnext", "bmc")
	a.Must(cmd.RegisterFlagCompletionFunc("image", a.CompleteImages("kind=os")))
	a.Must(cmd.RegisterFlagCompletionFunc("plan", a.CompletePlans()))
	return cmd
}

func (a commands) netbootCmd() *cobra.Command {
	var w command.WorkFlags
	var mode string
	var reboot bool
	cmd := &cobra.Command{
		Use:   "netboot MACHINE",
		Short: "Boot a machine from the network next time",
		Long: `Set the next boot of a machine in maintenance to the network, or with --mode
DISK back to its disk, and with --reboot boot it now.` + command.WaitHelp,
		Example:           `  ingot netboot m-1 --mode HTTP --reboot`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{
						MachineId: args[0], RequestId: id, Mode: mode, Reboot: reboot, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "PXE (default), HTTP or DISK")
	cmd.Flags().BoolVar(&reboot, "reboot", false, "reboot at once")
	command.Fixed(cmd, "mode", "PXE", "HTTP", "DISK")
	return cmd
}

func (a commands) enterCmd() *cobra.Command {
	var w command.WorkFlags
	var comment string
	cmd := &cobra.Command{
		Use:   "enter-maintenance MACHINE",
		Short: "Take a machine out of service",
		Long: `Move a machine to phase MAINTENANCE. Nothing is drained: move your workloads away first. Only this command and
exit-maintenance change the phase.` + command.WaitHelp,
		Example:           `  ingot enter-maintenance m-1 --comment "swap DIMM 3"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, _ int32) (*pb.Operation, error) {
					return svc.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: args[0], RequestId: id,
						Comment: comment})
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}

func (a commands) exitCmd() *cobra.Command {
	var w command.WorkFlags
	var comment string
	cmd := &cobra.Command{
		Use:               "exit-maintenance MACHINE",
		Short:             "Put a machine back into service",
		Long:              `Move a machine from phase MAINTENANCE to READY.` + command.WaitHelp,
		Example:           `  ingot exit-maintenance m-1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, _ int32) (*pb.Operation, error) {
					return svc.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: args[0], RequestId: id,
						Comment: comment})
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}
