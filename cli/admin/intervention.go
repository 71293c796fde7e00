package admin

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) settleCmd() *cobra.Command {
	var verdict, comment string
	cmd := &cobra.Command{
		Use:   "settle MACHINE COMMAND --verdict happened|did-not-happen",
		Short: "Say what became of a command whose outcome is unknown",
		Long: `A command that was under way when its agent fell silent may have acted, or may still act.
Until that is settled no disruptive work is allowed on the machine. Usually a late result or a new
boot settles it; if neither will come, look at the machine and say what you found. Your word is
recorded.

The command's id must be the unresolved one, so that nobody settles what they did not look at.`,
		Example: `  ingot machine get m-1                 # shows UnresolvedCommandId
  ingot settle m-1 cmd-01k --verdict did-not-happen --comment "uptime 40 days"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines(), a.completeUnresolved),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.Subject.Machine = args[0]
			word := strings.ReplaceAll(verdict, "-", "_")
			if word != "happened" && word != "did_not_happen" {
				return command.Usagef("--verdict must be happened or did-not-happen")
			}
			svc, err := a.Services()
			if err != nil {
				return err
			}
			m, err := svc.Admin.SettleCommand(cmd.Context(), &pb.SettleCommandRequest{
				MachineId: args[0], CommandId: args[1], Verdict: word, Comment: comment,
			})
			if err != nil {
				return err
			}
			return a.PrintMachine(m)
		},
	}
	cmd.Flags().StringVar(&verdict, "verdict", "", "happened or did-not-happen")
	cmd.Flags().StringVar(&comment, "comment", "", "how you know; kept in the audit log")
	a.Must(cmd.MarkFlagRequired("verdict"))
	command.Fixed(cmd, "verdict", "happened", "did-not-happen")
	return cmd
}

func (a commands) completeUnresolved(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	svc, err := a.Services()
	if err != nil || cmd.Context() == nil {
		return nil, cobra.ShellCompDirectiveError
	}
	m, err := svc.Machines.GetMachine(cmd.Context(), &pb.GetMachineRequest{MachineId: args[0]})
	id := m.GetStatus().GetUnresolvedCommandId()
	if err != nil || !strings.HasPrefix(id, prefix) || id == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{id}, cobra.ShellCompDirectiveNoFileComp
}

func (a commands) clearCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "clear MACHINE",
		Short: "Clear NeedsIntervention and release a quarantined machine",
		Long: `Say that a machine which needed a person has had one: clear the condition NeedsIntervention and release it from
quarantine. An unresolved command stays; see ingot settle.`,
		Example:           "  ingot clear m-1 --comment \"cable replaced\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: a.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			a.Subject.Machine = args[0]
			m, err := svc.Admin.ClearIntervention(cmd.Context(),
				&pb.ClearInterventionRequest{MachineId: args[0], Comment: comment})
			if err != nil {
				return err
			}
			return a.PrintMachine(m)
		}),
	}
	cmd.Flags().StringVar(&comment, "comment", "", "what was done; kept in the audit log")
	return cmd
}

func (a commands) flagCmd() *cobra.Command {
	var off bool
	var comment string
	cmd := &cobra.Command{
		Use:   "flag MACHINE RMA|Retired",
		Short: "Mark a machine for return or as retired",
		Long: `Set the condition RMA or Retired, or clear it with --off. A flagged machine is
BLOCKED: it refuses all work.`,
		Example: "  ingot flag m-1 RMA\n  ingot flag m-1 RMA --off",
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines(),
			cobra.FixedCompletions([]string{"RMA", "Retired"}, cobra.ShellCompDirectiveNoFileComp)),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.Subject.Machine = args[0]
			name, ok := map[string]string{"rma": "RMA", "retired": "Retired"}[strings.ToLower(args[1])]
			if !ok {
				return command.Usagef("the flag must be RMA or Retired, not %q", args[1])
			}
			svc, err := a.Services()
			if err != nil {
				return err
			}
			m, err := svc.Admin.SetMachineFlag(cmd.Context(), &pb.SetMachineFlagRequest{
				MachineId: args[0], Flag: name, Value: !off, Comment: comment,
			})
			if err != nil {
				return err
			}
			return a.PrintMachine(m)
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "clear the flag")
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	return cmd
}

func (a commands) commandsCmd() *cobra.Command {
	var machine string
	cmd := &cobra.Command{
		Use:   "commands [OPERATION]",
		Short: "Show the commands that agents were given",
		Long: `Show the commands of an operation, or of a machine: one for each attempt of each step, who
was to execute it, when it was granted leave to act, and what came of it.`,
		Example:           "  ingot commands op-01k\n  ingot commands --machine m-1 -o wide",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			op := strings.Join(args, "")
			if (op == "") == (machine == "") {
				return command.Usagef("give an operation or --machine, one of the two")
			}
			a.Subject = command.Subject{Machine: machine, Operation: op}
			svc, err := a.Services()
			if err != nil {
				return err
			}
			all, err := command.Pages(0, func(size int32, token string) ([]*pb.Command, string, error) {
				r, err := svc.Admin.ListCommands(cmd.Context(), &pb.ListCommandsRequest{
					OperationId: op, MachineId: machine, PageSize: size, PageToken: token,
				})
				return r.GetCommands(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			for _, c := range all {
				names = append(names, c.GetCommandId())
			}
			return a.Print(&pb.ListCommandsResponse{Commands: all},
				func() string { return a.Style().Commands(all, a.Wide()).String() }, names...)
		},
	}
	cmd.Flags().StringVar(&machine, "machine", "", "all commands of this machine")
	a.Must(cmd.RegisterFlagCompletionFunc("machine", a.CompleteMachines()))
	return cmd
}
