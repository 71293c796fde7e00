package inventory

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) scriptCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "script",
		Short: "Add, list, show and remove scripts",
		Long: `The script catalogue holds what the ssh steps of plans run on machines. A step names a
script; its bytes are sent with their digest. A script never changes: another one needs another
name.`,
		Example: "  ingot script add fix-raid-1 fix-raid.sh\n  ingot script list",
	}
	cmd.AddCommand(a.scriptAddCmd(), a.scriptListCmd(), a.scriptShowCmd(), a.scriptRemoveCmd())
	return cmd
}

func (a commands) printScript(s *pb.Script) error {
	return a.app.Print(s, func() string {
		return fmt.Sprintf("%s: %d bytes, sha256 %s, run by %s\n", s.GetScriptRef(), s.GetSizeBytes(), s.GetSha256(),
			s.GetInterpreter())
	}, s.GetScriptRef())
}

func (a commands) scriptAddCmd() *cobra.Command {
	s := &pb.Script{}
	cmd := &cobra.Command{
		Use:   "add NAME FILE",
		Short: "Add a script from a file",
		Long: `Add a script of at most 1 MiB; - is standard input. The same script again changes nothing;
another one under a name that is taken is refused. --destructive gates every step that runs it like
a reimage.`,
		Example: `  ingot script add fix-raid-1 fix-raid.sh
  ingot script add wipe-cache-2 wipe.py --interpreter /usr/bin/python3 --destructive`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := a.app.ReadInput(args[1])
			if err != nil {
				return err
			}
			svc := a.app.Services()
			s.ScriptRef = args[0]
			added, err := svc.Scripts.AddScript(cmd.Context(), &pb.AddScriptRequest{Script: s, Content: content})
			if err != nil {
				return err
			}
			return a.printScript(added)
		},
	}
	cmd.Flags().StringVar(&s.Interpreter, "interpreter", "", "absolute path of the program that runs it (default /bin/sh)")
	cmd.Flags().StringVar(&s.Sha256, "sha256", "", "SHA-256 that the file must have, in hexadecimal digits")
	cmd.Flags().BoolVar(&s.Destructive, "destructive", false, "needs phase MAINTENANCE, like a reimage")
	return cmd
}

func (a commands) scriptListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Scripts.ListScripts, (*pb.Script).GetScriptRef, view.Style.Scripts).
		Command(a.app, &cobra.Command{
			Short:   "List scripts",
			Long:    `List the scripts of the catalogue.`,
			Example: "  ingot script list",
		}, "script_ref=fix-*", "created_at desc")
}

func (a commands) scriptShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a script's digest and interpreter",
		Long:              `Show what the catalogue says of a script.`,
		Example:           "  ingot script show fix-raid-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteScripts()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			s, err := svc.Scripts.GetScript(cmd.Context(), &pb.GetScriptRequest{ScriptRef: args[0]})
			if err != nil {
				return err
			}
			return a.printScript(s)
		}),
	}
}

func (a commands) scriptRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a script that no active operation needs",
		Long:              `Remove a script from the catalogue. It is refused while an active operation needs it.`,
		Example:           "  ingot script remove fix-raid-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteScripts()),
		RunE:              command.Do(a.app, "Removed", a.app.Services().Scripts.RemoveScript, (*pb.Script).GetScriptRef),
	}
}
