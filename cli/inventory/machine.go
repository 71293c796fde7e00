package inventory

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/hardware"
)

func (a commands) machineCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "machine",
		Short:   "Register, show, change and delete machines",
		Long:    `Register, show, change and delete machines of the inventory.`,
		Example: `  ingot machine get m-1`,
	}
	cmd.AddCommand(a.machineRegisterCmd(), a.machineGetCmd(), a.machineUpdateCmd(), a.machineDeleteCmd(),
		a.machineInventoryCmd(), a.machineForgetTPMCmd())
	cmd.AddCommand(hardware.Commands(a.app)...)
	return cmd
}

func (a commands) machineRegisterCmd() *cobra.Command {
	var s specFlags
	cmd := &cobra.Command{
		Use:   "register MACHINE",
		Short: "Register a machine, or update a known one",
		Long: `Register a machine under an id of your choice: 1 to 63 characters of a-z, 0-9, dot and
hyphen. A known id has its spec and labels replaced. Next, give it an agent: ingot token issue
MACHINE.`,
		Example: `  ingot machine register m-1 --mac-addresses 52:54:00:12:34:56 --rack r42 --label env=prod
  ingot machine register m-2 --mac 52:54:00:12:34:57 --bmc-endpoint 10.30.0.2 --bmc-credentials rack-42 --site berlin`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine = args[0]
			m := &pb.Machine{MachineId: args[0]}
			if err := s.apply(cmd, m); err != nil {
				return err
			}
			svc := a.app.Services()
			got, err := svc.Machines.RegisterMachine(cmd.Context(), &pb.RegisterMachineRequest{Machine: m})
			if err != nil {
				return err
			}
			return a.app.PrintMachine(got)
		},
	}
	s.register(cmd)
	a.app.CompleteSpec(cmd)
	return cmd
}

func (a commands) machineGetCmd() *cobra.Command {
	var external bool
	var asOf command.AsOf
	cmd := &cobra.Command{
		Use:     "get MACHINE",
		Aliases: []string{"show"},
		Short:   "Show one machine",
		Long:    `Show one machine: state, spec, labels and every condition; with --as-of as they were then.`,
		Example: "  ingot machine get m-1\n  ingot machine get --external-id srv-4711 -o json\n" +
			"  ingot machine get m-1 --as-of 03:12",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine = args[0]
			at, err := asOf.Read(a.app)
			if err != nil {
				return err
			}
			svc := a.app.Services()
			req := &pb.GetMachineRequest{MachineId: args[0], AsOf: at}
			if external {
				req = &pb.GetMachineRequest{ExternalId: args[0]}
			}
			m, err := svc.Machines.GetMachine(cmd.Context(), req)
			if err != nil {
				return err
			}
			checks, err := checksOf(cmd.Context(), svc, m, at)
			if err != nil {
				return err
			}
			return a.app.Print(m, func() string { return a.app.Style().Machine(m) + a.app.Style().Checks(checks) },
				m.GetMachineId())
		},
	}
	cmd.Flags().BoolVar(&external, "external-id", false, "MACHINE is the upstream's identifier")
	asOf.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("as-of", "external-id")
	return cmd
}

// checksOf reads the health checks of a machine on its way in. Those of an earlier time are not stored.
func checksOf(
	ctx context.Context, svc *command.Services, m *pb.Machine, at *timestamppb.Timestamp,
) ([]*pb.NodeCheck, error) {
	switch m.GetStatus().GetNodeState() {
	case pb.NodeState_NODE_STATE_BOOTSTRAP_ISSUED, pb.NodeState_NODE_STATE_ENROLLING:
		if at != nil {
			return nil, nil
		}
		n, err := svc.Nodes.GetNode(ctx, &pb.GetNodeRequest{NodeId: m.GetMachineId()})
		return n.GetChecks(), err
	}
	return nil, nil
}

func (a commands) machineUpdateCmd() *cobra.Command {
	var s specFlags
	cmd := &cobra.Command{
		Use:   "update MACHINE…",
		Short: "Change fields of machines' specs, and labels",
		Long: `Change the fields that are given and leave the others. Where the machine changes at the same
moment, it is read again and the fields that are given are changed in what is there now.`,
		Example: `  ingot machine update m-1 --rack r43 --label env=staging --label old-
  ingot machine update --select rack=r42 --label env=prod`,
	}
	s.register(cmd)
	a.app.ForEach(cmd, "%d machines are changed.", func(ctx context.Context, svc *command.Services, id string) error {
		got, err := s.update(ctx, cmd, svc, id)
		for range 2 {
			if apiclient.Reason(err) != pb.Reason_VERSION_CONFLICT {
				break
			}
			got, err = s.update(ctx, cmd, svc, id)
		}
		if err != nil {
			return err
		}
		return a.app.PrintMachine(got)
	})
	cmd.PreRunE = ofOne
	a.app.CompleteSpec(cmd)
	return cmd
}

// update changes the given fields of the machine as it is now. A machine that changes between reading and writing is a
// VERSION_CONFLICT, and nothing is written.
func (s *specFlags) update(
	ctx context.Context, cmd *cobra.Command, svc *command.Services, id string,
) (*pb.Machine, error) {
	m, err := svc.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: id})
	if err != nil {
		return nil, err
	}
	if err := s.apply(cmd, m); err != nil {
		return nil, err
	}
	return svc.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
		// All of it, as it was read and changed: what a flag empties is cleared. Its version refuses a lost update.
		Machine: m, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels", "spec"}},
	})
}

func (a commands) machineDeleteCmd() *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "delete MACHINE…",
		Short: "Remove an idle machine from the inventory",
		Long: `Remove a machine that has no active operation from the inventory. Its id is never used
again. Nothing is done to the machine itself. One that is in service is decommissioned first, unless
an admin says --purge.`,
		Example: "  ingot machine delete m-1",
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "leave out the decommission of a machine that is in service (admin)")
	return a.app.ForEach(cmd, "%d machines leave the inventory for good.",
		func(ctx context.Context, svc *command.Services, id string) error {
			m, err := svc.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: id, Purge: purge})
			if err != nil {
				return err
			}
			return a.app.Print(m, func() string { return "Deleted " + id + "\n" }, id)
		})
}

func (a commands) machineInventoryCmd() *cobra.Command {
	var history int32
	cmd := &cobra.Command{
		Use:   "inventory MACHINE",
		Short: "Show the hardware that the machine's agent found, and what has changed of it",
		Long: `Show the last hardware inventory that an agent reported for the machine, and how it differs from the one
before it.`,
		Example: "  ingot machine inventory m-1\n  ingot machine inventory m-1 --history 49\n" +
			"  ingot machine inventory m-1 -o json | jq .document.cpu",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			a.app.Subject.Machine = args[0]
			inv, err := svc.Machines.GetInventory(cmd.Context(), &pb.GetInventoryRequest{MachineId: args[0], History: history})
			if err != nil {
				return err
			}
			return a.app.Print(inv, func() string { return hardware.Inventory(a.app.Style(), inv) }, inv.GetMachineId())
		}),
	}
	cmd.Flags().Int32Var(&history, "history", 1, "with how many earlier inventories to compare, at most 49")
	return cmd
}

func (a commands) machineForgetTPMCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "forget-tpm MACHINE",
		Short: "Forget the TPM that a machine is known by, after a change of its mainboard",
		Long: `Remove the endorsement key by which a machine's installers prove their identity. The next
RAM system records the TPM that it finds, by its first use: be sure that it is the machine.`,
		Example:           "  ingot machine forget-tpm m-1 --comment \"mainboard replaced\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			a.app.Subject.Machine = args[0]
			m, err := svc.Admin.ForgetTPM(cmd.Context(), &pb.ForgetTPMRequest{MachineId: args[0], Comment: comment})
			if err != nil {
				return err
			}
			return a.app.PrintMachine(m)
		}),
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}
