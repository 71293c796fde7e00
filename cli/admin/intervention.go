package admin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) settleCmd() *cobra.Command {
	var verdict, comment string
	cmd := &cobra.Command{
		Use:   "settle MACHINE COMMAND --verdict happened|did-not-happen --comment TEXT",
		Short: "Say what became of a command whose outcome is unknown",
		Long: `A command that was under way when its agent fell silent may have acted, or may still act.
Until that is settled no disruptive work is allowed on the machine. Usually a late result or a new
boot settles it; if neither will come, look at the machine and say what you found. Your word is
recorded.

The command's id must be the unresolved one, so that nobody settles what they did not look at.`,
		Example: `  ingot machine get m-1                 # shows UnresolvedCommandId
  ingot settle m-1 cmd-01k --verdict did-not-happen --comment "uptime 40 days"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines(), a.completeUnresolved),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine = args[0]
			word := strings.ReplaceAll(verdict, "-", "_")
			if word != "happened" && word != "did_not_happen" {
				return command.Usagef("--verdict must be happened or did-not-happen")
			}
			if strings.TrimSpace(comment) == "" {
				return command.Usagef("--comment is required: how you know")
			}
			svc := a.app.Services()
			m, err := svc.Admin.SettleCommand(cmd.Context(), &pb.SettleCommandRequest{
				MachineId: args[0], CommandId: args[1], Verdict: word, Comment: comment,
			})
			if err != nil {
				return err
			}
			return a.app.PrintMachine(m)
		},
	}
	cmd.Flags().StringVar(&verdict, "verdict", "", "happened or did-not-happen")
	cmd.Flags().StringVar(&comment, "comment", "", "required: how you know; kept in the audit log")
	a.app.Must(cmd.MarkFlagRequired("verdict"))
	a.app.Must(cmd.MarkFlagRequired("comment"))
	command.Fixed(cmd, "verdict", "happened", "did-not-happen")
	return cmd
}

func (a commands) completeUnresolved(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	if cmd.Context() == nil {
		return nil, cobra.ShellCompDirectiveError
	}
	m, err := a.app.Services().Machines.GetMachine(cmd.Context(), &pb.GetMachineRequest{MachineId: args[0]})
	id := m.GetStatus().GetUnresolvedCommandId()
	if err != nil || !strings.HasPrefix(id, prefix) || id == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{id}, cobra.ShellCompDirectiveNoFileComp
}

func (a commands) clearCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "clear MACHINE…",
		Short: "Clear NeedsIntervention and release quarantined machines",
		Long: `Say that a machine which needed a person has had one: clear the condition NeedsIntervention and release it from
quarantine. An unresolved command stays; see ingot settle.`,
		Example: `  ingot clear m-1 --comment "cable replaced"
  ingot clear r42-[01-16] --comment "the rack's power is back"`,
	}
	cmd.Flags().StringVar(&comment, "comment", "", "what was done; kept in the audit log")
	return a.app.ForEach(cmd, "%d machines are cleared for work.",
		func(ctx context.Context, svc *command.Services, id string) error {
			m, err := svc.Admin.ClearIntervention(ctx, &pb.ClearInterventionRequest{MachineId: id, Comment: comment})
			if err != nil {
				return err
			}
			return a.app.PrintMachine(m)
		})
}

func (a commands) flagCmd() *cobra.Command {
	var off bool
	var comment, name string
	cmd := &cobra.Command{
		Use:   "flag MACHINE… RMA|Retired",
		Short: "Mark machines for return or as retired",
		Long: `Set the condition RMA or Retired, or clear it with --off. A flagged machine is
BLOCKED: it refuses all work.`,
		Example: "  ingot flag m-1 RMA\n  ingot flag m-1 RMA --off\n  ingot flag --select rack=r7 Retired",
	}
	cmd.Flags().BoolVar(&off, "off", false, "clear the flag")
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	a.app.ForEach(cmd, "The flag of %d machines is changed.",
		func(ctx context.Context, svc *command.Services, id string) error {
			m, err := svc.Admin.SetMachineFlag(ctx, &pb.SetMachineFlagRequest{
				MachineId: id, Flag: name, Value: !off, Comment: comment,
			})
			if err != nil {
				return err
			}
			return a.app.PrintMachine(m)
		})
	// The last word is the flag, the ones before it are machines.
	checkMachines, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		last := len(args) - 1
		if last < 0 {
			return command.Usagef("which flag? Give RMA or Retired")
		}
		if name = map[string]string{"rma": "RMA", "retired": "Retired"}[strings.ToLower(args[last])]; name == "" {
			return command.Usagef("the flag must be RMA or Retired, not %q", args[last])
		}
		return checkMachines(cmd, args[:last])
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, args[:len(args)-1]) }
	cmd.ValidArgsFunction = command.CompleteAt(a.app.CompleteMachines(),
		cobra.FixedCompletions([]string{"RMA", "Retired"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a commands) commandsCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Admin.ListCommands, (*pb.Command).GetCommandId, view.Style.Commands)
	l.Prepare = func(args []string) error {
		r := l.Request
		r.OperationId = strings.Join(args, "")
		if (r.OperationId == "") == (r.MachineId == "") {
			return command.Usagef("give an operation or --machine, one of the two")
		}
		a.app.Subject = command.Subject{Machine: r.MachineId, Operation: r.OperationId}
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "commands [OPERATION]",
		Short: "Show the commands that agents were given",
		Long: `Show the commands of an operation, or of a machine: one for each attempt of each step, who
was to execute it, when it was granted leave to act, and what came of it.`,
		Example:           "  ingot commands op-01k\n  ingot commands --machine m-1 -o wide",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
	}, "", "")
	cmd.Flags().StringVar(&l.Request.MachineId, "machine", "", "all commands of this machine")
	a.app.Must(cmd.RegisterFlagCompletionFunc("machine", a.app.CompleteMachines()))
	return cmd
}
