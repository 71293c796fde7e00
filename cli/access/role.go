package access

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
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
			svc, err := a.app.Services()
			if err != nil {
				return err
			}
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
	return cmd
}

func (a commands) listRolesCmd() *cobra.Command {
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List who has which role",
		Long:    `List the role bindings, newest first; those that have ended too.`,
		Example: "  ingot role list\n  ingot role list --filter role=admin --order-by expires_at",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			all, err := command.Pages(0, func(size int32, page string) ([]*pb.RoleBinding, string, error) {
				r, err := svc.Access.ListRoleBindings(cmd.Context(), &pb.ListRoleBindingsRequest{PageSize: size, PageToken: page,
					Filter: narrow.Filter, OrderBy: narrow.OrderBy})
				return r.GetBindings(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return a.app.Print(&pb.ListRoleBindingsResponse{Bindings: all}, func() string {
				return a.app.Style().RoleBindings(all, a.app.Now()).String()
			}, command.Names(all, (*pb.RoleBinding).GetBindingId)...)
		}),
	}
	narrow.Register(cmd, "role=operator,group=night", "expires_at desc")
	return cmd
}

func (a commands) revokeRoleCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke BINDING",
		Short:             "Take a role away",
		Long:              `Delete a role binding. Within 2 s it counts nowhere, and watches that it had let in end.`,
		Example:           "  ingot role revoke rb-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			gone, err := svc.Access.DeleteRoleBinding(cmd.Context(), &pb.DeleteRoleBindingRequest{BindingId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(
				gone,
				func() string { return "Revoked " + a.app.Style().RoleBinding(gone) + "\n" },
				gone.GetBindingId(),
			)
		}),
	}
}

func (a commands) sessionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Short:   "Sessions of the people who have signed on",
		Long:    `A session is one sign-on of a person, with the tokens that were renewed since.`,
		Example: "  ingot session list\n  ingot session revoke ss-0a1b",
	}
	var all bool
	var narrow command.Narrow
	list := &cobra.Command{
		Use:     "list",
		Short:   "List who is signed on",
		Long:    `List the sessions whose tokens have not ended, newest first; --all those of 90 days.`,
		Example: "  ingot session list\n  ingot session list --all --filter name=ada",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listSessions(cmd, all, narrow) },
	}
	list.Flags().BoolVar(&all, "all", false, "revoked and expired ones, too")
	narrow.Register(list, "name=ada", "last_seen_at desc")
	revoke := &cobra.Command{
		Use:   "revoke SESSION",
		Short: "End a session",
		Long: `End a session within 2 s, on every controller: calls are refused, watches end, and renewed tokens of
the session count no more. The person can sign on again; take roles away to prevent that.`,
		Example:           "  ingot session revoke ss-0a1b",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			s, err := svc.Access.RevokeSession(cmd.Context(), &pb.RevokeSessionRequest{SessionId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(s, func() string { return "Revoked " + s.GetSessionId() + "\n" }, s.GetSessionId())
		}),
	}
	cmd.AddCommand(list, revoke)
	return cmd
}

func (a commands) listSessions(cmd *cobra.Command, ended bool, narrow command.Narrow) error {
	svc, err := a.app.Services()
	if err != nil {
		return err
	}
	all, err := command.Pages(0, func(size int32, page string) ([]*pb.Session, string, error) {
		r, err := svc.Access.ListSessions(cmd.Context(), &pb.ListSessionsRequest{PageSize: size, PageToken: page, All: ended,
			Filter: narrow.Filter, OrderBy: narrow.OrderBy})
		return r.GetSessions(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return a.app.Print(&pb.ListSessionsResponse{Sessions: all}, func() string {
		return a.app.Style().Sessions(all, a.app.Now()).String()
	}, command.Names(all, (*pb.Session).GetSessionId)...)
}
