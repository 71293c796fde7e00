package access

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

var roles = []string{"viewer", "operator", "approver", "admin"}

func (a commands) roleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Who may do what, among the people who sign on",
		Long: `People who sign on have the roles that are bound to them or to their groups: viewer reads, operator
works on machines, approver reads and approves rollouts, admin does everything. A role may be for some
machines alone; what is not about machines then needs another one without a selection.`,
		Example: "  ingot role grant operator --group night-shift --select site=berlin\n  ingot role list",
	}
	cmd.AddCommand(a.grantCmd(), a.listRolesCmd(), a.revokeRoleCmd())
	return cmd
}

func (a commands) grantCmd() *cobra.Command {
	b := &pb.RoleBinding{}
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "grant ROLE",
		Short: "Give a role to a group or a person",
		Long: `Give a role to a group of the provider, or to a person by its "sub", which ingot whoami shows. It
counts within 2 s. The same role for the same member and selection again changes when it ends.`,
		Example: `  ingot role grant admin --group ops-leads
  ingot role grant operator --group night-shift --select site=berlin,labels.team=web --for 12h`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: roles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (b.GetGroup() == "") == (b.GetSubject() == "") {
				return command.Usagef("name who has the role: --group or --subject, one of both")
			}
			b.Role = args[0]
			if lasts > 0 {
				b.ExpiresAt = timestamppb.New(a.app.Now().Add(lasts))
			}
			svc := a.app.Services()
			made, err := svc.Access.CreateRoleBinding(cmd.Context(), &pb.CreateRoleBindingRequest{Binding: b})
			if err != nil {
				return err
			}
			return a.app.Print(
				made,
				func() string { return "Granted " + a.app.Style().RoleBinding(made) + "\n" },
				made.GetBindingId(),
			)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&b.Group, "group", "", "group of the provider")
	fl.StringVar(&b.Subject, "subject", "", `person, by the provider's "sub"`)
	fl.StringVar(&b.Selection, "select", "", "machines that it is for, as in ingot list --filter (default: all)")
	fl.DurationVar(&lasts, "for", 0, "how long it lasts (default: until it is revoked)")
	command.Narrows(cmd, "all machines", "select")
	command.Narrows(cmd, "a role until it is revoked", "for")
	return cmd
}

func (a commands) listRolesCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Access.ListRoleBindings,
		(*pb.RoleBinding).GetBindingId, view.Style.RoleBindings).
		Command(a.app, &cobra.Command{
			Short:   "List who has which role",
			Long:    `List the role bindings, newest first; those that have ended too.`,
			Example: "  ingot role list\n  ingot role list --filter role=admin --order-by expires_at",
		}, "role=operator,group=night", "expires_at desc")
}

func (a commands) revokeRoleCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke BINDING",
		Short:             "Take a role away",
		Long:              `Delete a role binding. Within 2 s it counts nowhere, and watches that it had let in end.`,
		Example:           "  ingot role revoke rb-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command.Show(a.app, a.app.Services().Access.DeleteRoleBinding, (*pb.RoleBinding).GetBindingId,
			func(s view.Style, gone *pb.RoleBinding) string { return "Revoked " + s.RoleBinding(gone) + "\n" }),
	}
}

func (a commands) sessionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Short:   "Sessions of the people who have signed on",
		Long:    `A session is one sign-on of a person, with the tokens that were renewed since.`,
		Example: "  ingot session list\n  ingot session revoke ss-0a1b",
	}
	l := command.ListOf(a.app.Services().Access.ListSessions, (*pb.Session).GetSessionId, view.Style.Sessions)
	list := l.Command(a.app, &cobra.Command{
		Short:   "List who is signed on",
		Long:    `List the sessions whose tokens have not ended, newest first; --all those of 90 days.`,
		Example: "  ingot session list\n  ingot session list --all --filter name=ada",
	}, "name=ada", "last_seen_at desc")
	list.Flags().BoolVar(&l.Request.All, "all", false, "revoked and expired ones, too")
	revoke := &cobra.Command{
		Use:   "revoke SESSION",
		Short: "End a session",
		Long: `End a session within 2 s, on every controller: calls are refused, watches end, and renewed tokens of
the session count no more. The person can sign on again; take roles away to prevent that.`,
		Example:           "  ingot session revoke ss-0a1b",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              command.Do(a.app, "Revoked", a.app.Services().Access.RevokeSession, (*pb.Session).GetSessionId),
	}
	cmd.AddCommand(list, revoke)
	return cmd
}
