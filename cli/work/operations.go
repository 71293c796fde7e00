package work

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) rebootCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var mode, plan string
	cmd := &cobra.Command{
		Use:   "reboot MACHINE…",
		Short: "Reboot a machine",
		Long: `Reboot a machine in phase READY or MAINTENANCE. It counts as done when the machine has come back with another
boot id, not when it was told to reboot.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot reboot m-1
  ingot reboot m-1 --mode force --request-id fix-1234
  ingot reboot 'r42-[01-16]' --max-in-flight 4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := &pb.RolloutSpec{Type: "REBOOT", PlanId: plan, Params: map[string]string{"mode": mode}}
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{
						ValidateOnly: b.ValidateOnly,
						MachineId:    machine, RequestId: id, Mode: mode, PlanId: plan, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "graceful (default), force, or bmc to power-cycle it from outside")
	cmd.Flags().StringVar(&plan, "plan", "", "plan to run instead of the default one")
	command.Fixed(cmd, "mode", "graceful", "force", "bmc")
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
	return cmd
}

func (a commands) reimageCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var seed command.SeedFlags
	var image, plan, path string
	var agentless bool
	cmd := &cobra.Command{
		Use:   "reimage MACHINE…",
		Short: "Write an OS image; all data on the target disk is lost",
		Long: `Write an OS image to a machine. All data on its target disk is lost, so the machine must be in maintenance:
ingot enter-maintenance MACHINE.

--path says how the machine gets into the installer. auto takes what works: kexec from the running system, the
firmware's next boot, or the BMC. Any other fails instead of falling back.

The image may be as its vendor ships it: the installer adds the agent, and for cloud-init ssh keys, user-data and a
network configuration. These are kept sealed, and shown nowhere. With --agentless it adds no agent: cloud-init
phones home to the site's agent when the system is up, and only that proves it.` +
			command.TargetsHelp + command.WaitHelp,
		Example: `  ingot reimage m-1 --image ubuntu-2204
  ingot reimage m-1 --image debian-13 --ssh-key ~/.ssh/id_ed25519.pub --user-data web.yaml
  ingot reimage m-1 --image ubuntu-2204 --path bmc
  ingot reimage m-1 --image ubuntu-2204 --request-id deploy-v2.1 --no-wait
  ingot reimage --select rack=r42,state=MAINTENANCE --image ubuntu-2204`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := seed.Read(a.app)
			if err != nil {
				return err
			}
			spec := &pb.RolloutSpec{Type: "REIMAGE", PlanId: plan,
				Params: map[string]string{"image_ref": image, "path": path, "agentless": flagText(agentless)}, Seed: given}
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{
						ValidateOnly: b.ValidateOnly,
						MachineId:    machine, RequestId: id, ImageRef: image, PlanId: plan, Path: path, TimeoutSeconds: secs,
						Seed: given, Agentless: agentless,
					})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&image, "image", "", "image to write (default: the machine's or the server's)")
	cmd.Flags().StringVar(&plan, "plan", "", "plan to run instead of the default one")
	cmd.Flags().StringVar(&path, "path", "", "auto (default), kexec, bootnext, bmc or media")
	seed.Register(cmd)
	cmd.Flags().BoolVar(&agentless, "agentless", false, agentlessUsage)
	command.Fixed(cmd, "path", "auto", "kexec", "bootnext", "bmc", "media")
	a.app.Must(cmd.RegisterFlagCompletionFunc("image", a.app.CompleteImages("kind=os")))
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
	return cmd
}

func (a commands) netbootCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var mode string
	var reboot bool
	cmd := &cobra.Command{
		Use:   "netboot MACHINE…",
		Short: "Boot a machine from the network next time",
		Long: `Set the next boot of a machine in maintenance to the network, or with --mode
DISK back to its disk, and with --reboot boot it now.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot netboot m-1 --mode HTTP --reboot`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := &pb.RolloutSpec{Type: "NETBOOT",
				Params: map[string]string{"mode": mode, "reboot": flagText(reboot)}}
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{
						ValidateOnly: b.ValidateOnly,
						MachineId:    machine, RequestId: id, Mode: mode, Reboot: reboot, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&mode, "mode", "", "PXE (default), HTTP or DISK")
	cmd.Flags().BoolVar(&reboot, "reboot", false, "reboot at once")
	command.Fixed(cmd, "mode", "PXE", "HTTP", "DISK")
	return cmd
}

func (a commands) enterCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var comment string
	cmd := &cobra.Command{
		Use:   "enter-maintenance MACHINE…",
		Short: "Take a machine out of service",
		Long: `Move a machine to phase MAINTENANCE. Nothing is drained: move your workloads away first. Only this command and
exit-maintenance change the phase.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot enter-maintenance m-1 --comment "swap DIMM 3"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := &pb.RolloutSpec{Type: "ENTER_MAINTENANCE"}
			b.Comment = comment
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, _ int32) (*pb.Operation, error) {
					return svc.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: machine, RequestId: id,
						ValidateOnly: b.ValidateOnly,
						Comment:      comment})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}

func (a commands) exitCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var comment string
	cmd := &cobra.Command{
		Use:     "exit-maintenance MACHINE…",
		Short:   "Put a machine back into service",
		Long:    `Move a machine from phase MAINTENANCE to READY.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot exit-maintenance m-1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := &pb.RolloutSpec{Type: "EXIT_MAINTENANCE"}
			b.Comment = comment
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, _ int32) (*pb.Operation, error) {
					return svc.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: machine, RequestId: id,
						ValidateOnly: b.ValidateOnly,
						Comment:      comment})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}

// flagText is a flag as a parameter; empty where it is not set.
func flagText(set bool) string {
	if set {
		return "true"
	}
	return ""
}
