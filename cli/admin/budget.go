package admin

import (
	"context"
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) budgetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget",
		Short: "Limit how many machines may be lost, or out of service, at a time",
		Long: `A budget limits work that destroys data, or work that takes machines out of service: how many
machines of the fleet, of each site or of each rack may be under it at a time, in an hour and in a
day. Work over it stays PENDING with WAITING_FOR_BUDGET and begins in the order of creation.

With --harm interrupts it counts machines that leave service: reboots, ENTER_MAINTENANCE, drains. A
machine holds that slot until it is in service again, in maintenance too. Machines that are out of
service already take none.

A machine holds its slot until an operation on it has succeeded. One that an operation has left
behind FAILED or CANCELED holds it until it is reimaged well, or until an administrator has looked:
ingot budget release. So a bad image stops after as many machines as the budget has slots.`,
		Example: `  ingot budget set fleet --domain fleet --at-once 50 --per-hour 200
  ingot budget set racks --domain label:rack --percent 10
  ingot budget set service --harm interrupts --percent 5
  ingot budget slots`,
	}
	cmd.AddCommand(a.budgetSetCmd(), a.budgetListCmd(), a.budgetDeleteCmd(), a.budgetSlotsCmd(), a.budgetReleaseCmd())
	return cmd
}

func (a commands) printBudget(b *pb.Budget, verb string) error {
	return a.app.Print(b, func() string {
		return verb + " budget " + b.GetName() + "\n" + command.Table(a.app, view.Style.Budgets, b)
	}, b.GetName())
}

func (a commands) budgetSetCmd() *cobra.Command {
	b := &pb.Budget{}
	var harm string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a budget or replace it",
		Long: `Make a budget, or replace it with another of the same name. Each number is a limit of its
own. Work that has begun goes on; a lower limit holds for what comes next.`,
		Example: `  ingot budget set fleet --domain fleet --at-once 50 --per-hour 200
  ingot budget set racks --domain label:rack --percent 10
  ingot budget set old-rack --domain label:rack --value r42 --at-once 1`,
		Args: cobra.ExactArgs(1),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			b.Name = args[0]
			switch harm {
			case "destroys":
				b.Harm = pb.Budget_DESTROYS
			case "interrupts":
				b.Harm = pb.Budget_INTERRUPTS
			default:
				return command.Usagef("--harm is destroys or interrupts, not %q", harm)
			}
			set, err := svc.Budgets.SetBudget(cmd.Context(), &pb.SetBudgetRequest{Budget: b})
			if err != nil {
				return err
			}
			return a.printBudget(set, "Set")
		}),
	}
	f := cmd.Flags()
	f.StringVar(&b.Domain, "domain", "fleet", "what is counted by: fleet, site, or label:KEY such as label:rack")
	f.StringVar(&harm, "harm", "destroys", "the work that is limited: destroys (data are lost) or interrupts (service)")
	f.StringVar(&b.Value, "value", "", "one site or one value of the label (default: each by itself)")
	command.Narrows(cmd, "each by itself", "value")
	f.Int32Var(&b.AtOnce, "at-once", 0, "machines at a time")
	f.Int32Var(&b.Percent, "percent", 0, "percent of the domain's machines at a time, rounded down, one at least")
	f.Int32Var(&b.PerHour, "per-hour", 0, "machines in any 60 minutes")
	f.Int32Var(&b.PerDay, "per-day", 0, "machines in any 24 hours")
	return cmd
}

func (a commands) budgetListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Budgets.ListBudgets, (*pb.Budget).GetName, view.Style.Budgets).
		Command(a.app, &cobra.Command{
			Short:   "List budgets",
			Long:    `List all budgets by name.`,
			Example: "  ingot budget list",
		}, "domain=site", "at_once desc")
}

func (a commands) budgetDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a budget",
		Long: `Delete a budget. Whoever waited for it begins within a second, unless another
budget is in the way.`,
		Example:           "  ingot budget delete racks",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteBudgets()),
		RunE:              command.Do(a.app, "Deleted budget", a.app.Services().Budgets.DeleteBudget, (*pb.Budget).GetName),
	}
}

func (a commands) budgetSlotsCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Budgets.ListBudgetSlots, (*pb.BudgetSlot).GetMachineId, view.Style.BudgetSlots).
		Command(a.app, &cobra.Command{
			Use:   "slots",
			Short: "List the slots that are held",
			Long: `List the slots that are held, oldest first. Those of operations that have ended FAILED or
CANCELED wait for a success on the machine, or for ingot budget release.`,
			Example: "  ingot budget slots",
		}, "operation_phase=FAILED", "taken_at desc")
}

func (a commands) budgetReleaseCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "release MACHINE…",
		Short: "Give back the slots of machines that were left behind",
		Long: `Give back the slot of a machine whose operation has ended without success, once you have looked at it. While an
operation is active it is refused.`,
		Example: `  ingot budget release m-1 --comment "bad disk, replaced"`,
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return a.app.ForEach(cmd, "The slots of %d machines are given back.",
		func(ctx context.Context, svc *command.Services, id string) error {
			s, err := svc.Budgets.ReleaseBudgetSlot(ctx, &pb.ReleaseBudgetSlotRequest{MachineId: id, Comment: comment})
			if err != nil {
				return err
			}
			return a.app.Print(s, func() string { return "The slot of " + s.GetMachineId() + " is free\n" }, s.GetMachineId())
		})
}

func (a commands) freezeCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "Stop everything that touches machines",
		Long: `Start nothing on any machine and grant nothing, until ingot server thaw. Commands that were
granted before go on to their end. Use it when something goes wrong and you do not know yet what.`,
		Example: `  ingot server freeze --comment "rack 42 is losing disks"`,
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			i, err := svc.Budgets.FreezeFleet(cmd.Context(), &pb.FreezeFleetRequest{Comment: comment})
			if err != nil {
				return err
			}
			return a.app.Print(i, func() string { return "The fleet is frozen. To lift it: ingot server thaw\n" },
				i.GetControllerId())
		}),
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}
