package admin

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) tokenCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Bearer tokens of the API, and one-shot enrolment tokens of agents",
		Long: `A bearer token lets a person or a program call the API: ingot token create. An enrolment
token lets one agent enrol once: ingot token issue. The secret of either is shown when it is made
and never again.`,
		Example: "  ingot token create ci --scope operate\n  ingot token issue m-1",
	}
	cmd.AddCommand(a.tokenCreateCmd(), a.tokenIssueCmd(), a.tokenListCmd(), a.tokenRevokeCmd())
	return cmd
}

type tokenFlags struct {
	role     string
	lifetime time.Duration
	bare     bool
	req      pb.IssueBootstrapTokenRequest
}

func (a commands) tokenIssueCmd() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "issue [MACHINE]",
		Short: "Issue a token for one agent",
		Long: `Issue a one-shot token. Hand the string that is printed to the agent: ingot-agent enroll
--token-file FILE (- reads standard input). A token may be bound to a region, a provider, a MAC
address or a serial number; an agent that reports another is refused.

The call is sent once. If its answer is lost, look at ingot token list and revoke what you did not
get.`,
		Example: `  ingot token issue m-1 --lifetime 1h
  ingot token issue --role site --site berlin
  ingot token issue m-1 --bare | ingot-agent enroll --token-file -`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.req.MachineId = strings.Join(args, "")
			return a.issueToken(cmd, &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.role, "role", "host", "host or site; installers enrol at their site, without one")
	fl.StringVar(&f.req.Site, "site", "", "site that the agent serves, for --role site")
	fl.DurationVar(&f.lifetime, "lifetime", 0, "how long it may be used (default 24h, at most 30 days)")
	fl.StringVar(&f.req.Region, "region", "", "region that the agent must report")
	fl.StringVar(&f.req.Provider, "provider", "", "provider that the agent must report")
	fl.StringVar(&f.req.MacAddress, "mac", "", "MAC address that the machine must have")
	fl.StringVar(&f.req.Serial, "serial", "", "serial number that the machine must have")
	fl.BoolVar(&f.bare, "bare", false, "print the string and nothing else")
	command.Narrows(cmd, "a token for any", "region", "provider", "mac", "serial")
	command.Narrows(cmd, "24h", "lifetime")
	command.Fixed(cmd, "role", "host", "site")
	return cmd
}

func (a commands) issueToken(cmd *cobra.Command, f *tokenFlags) error {
	role, ok := pb.AgentRole_value["AGENT_ROLE_"+strings.ToUpper(f.role)]
	if !ok || role == 0 {
		return command.Usagef("--role must be host, site or installer, not %q", f.role)
	}
	a.app.Subject.Machine = f.req.GetMachineId()
	f.req.Role = pb.AgentRole(role)
	if f.lifetime != 0 {
		f.req.Lifetime = durationpb.New(f.lifetime)
	}
	svc := a.app.Services()
	r, err := svc.Admin.IssueBootstrapToken(cmd.Context(), &f.req)
	if err != nil {
		return err
	}
	if f.bare {
		return a.app.Write(r.GetBundle() + "\n")
	}
	return a.app.Print(r, func() string {
		t := r.GetToken()
		return "Token " + t.GetTokenId() + ", good once until " + view.Time(t.GetExpiresAt()) + ". Shown only now:\n\n" +
			"    " + r.GetBundle() +
			"\n\nOn the machine, with this string on standard input or in a file:\n\n    ingot-agent enroll --token-file -\n"
	}, r.GetToken().GetTokenId())
}

func (a commands) tokenCreateCmd() *cobra.Command {
	var scope, selection string
	var lifetime time.Duration
	var bare bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a bearer token for the API",
		Long: `Make a bearer token. Its name is the actor in the audit log. Its secret is printed once and
stored hashed; every controller knows it within 2 s. A token of the controller's file keeps working
beside it.

A selection narrows it to machines, such as site=berlin; a token of scope report needs one that names
a machine_id or a site. A token that a person makes is worth what that person's roles are, as of the
last sign-on. One that a token makes ends with that token.`,
		Example: `  ingot token create ci --scope operate --lifetime 720h
  ingot token create berlin --scope operate --selection site=berlin
  ingot token create backup --scope read --bare >backup.token`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			r, err := svc.Admin.CreateAPIToken(cmd.Context(), &pb.CreateAPITokenRequest{
				Name: args[0], Scope: scope, Lifetime: durationpb.New(lifetime), Selection: selection,
			})
			if err != nil {
				return err
			}
			if bare {
				return a.app.Write(r.GetSecret() + "\n")
			}
			return a.app.Print(r, func() string {
				t := r.GetToken()
				return "Token " + t.GetTokenId() + " of " + t.GetName() + ", scope " + t.GetScope() + of(t.GetSelection()) +
					", until " + view.Time(t.GetExpiresAt()) +
					". Shown only now:\n\n    " + r.GetSecret() + "\n"
			}, r.GetToken().GetTokenId())
		}),
	}
	cmd.Flags().StringVar(&scope, "scope", "read", "read, operate, report or admin")
	cmd.Flags().StringVar(&selection, "selection", "", "machines that it is good for, such as site=berlin (default all)")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 0, "how long it may be used (default 2160h, 90 days; at most 87600h)")
	cmd.Flags().BoolVar(&bare, "bare", false, "print the secret and nothing else")
	command.Narrows(cmd, "all machines", "selection")
	command.Narrows(cmd, "90 days", "lifetime")
	command.Fixed(cmd, "scope", "read", "operate", "report", "admin")
	return cmd
}

// of returns what a token is good for beside its scope.
func of(selection string) string {
	if selection == "" {
		return ""
	}
	return " on " + selection
}

func (a commands) tokenListCmd() *cobra.Command {
	var enrolment bool
	agents := command.ListOf(
		a.app.Services().Admin.ListBootstrapTokens,
		(*pb.BootstrapToken).GetTokenId,
		view.Style.Tokens,
	)
	bearers := command.ListOf(a.app.Services().Admin.ListAPITokens, func(t *pb.APIToken) string {
		return cmp.Or(t.GetTokenId(), t.GetName())
	}, view.Style.APITokens)
	cmd := agents.Command(a.app, &cobra.Command{
		Short: "List bearer tokens, or enrolment tokens",
		Long: `List the bearer tokens that are in force: those of the controller's file, then those of the
database. --enrolment lists the one-shot tokens of agents instead: open, used, expired and revoked;
these alone can be filtered and sorted.`,
		Example: "  ingot token list\n  ingot token list --all\n  ingot token list --enrolment --filter site=berlin",
	}, "role=SITE", "expires_at desc")
	listAgents := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case enrolment:
			return listAgents(cmd, args)
		case cmd.Flags().Changed("filter") || cmd.Flags().Changed("order-by"):
			return command.Usagef("--filter and --order-by are for --enrolment: bearer tokens come as they are")
		}
		return bearers.Run(cmd.Context(), a.app, args)
	}
	cmd.Flags().BoolVar(&enrolment, "enrolment", false, "the one-shot tokens of agents")
	cmd.Flags().BoolVar(&bearers.Request.All, "all", false, "revoked and expired bearer tokens, too")
	return cmd
}

func (a commands) tokenRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke TOKEN",
		Short: "End a bearer token, or an enrolment token that has not been used",
		Long: `End a bearer token (tk-…), and the tokens that were made with it: calls are refused and streams end
within 2 s, on every controller. Or end an enrolment token (t-…) that has not been used; one that has been used is
ended by revoking its agent. Tokens of the controller's file are removed there: take the line out
and reload (systemctl reload ingot-controller).`,
		Example:           "  ingot token revoke tk-01k\n  ingot token revoke t-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteTokens()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			var t interface {
				proto.Message
				GetTokenId() string
			}
			var err error
			if strings.HasPrefix(args[0], "tk-") {
				t, err = svc.Admin.RevokeAPIToken(cmd.Context(), &pb.RevokeAPITokenRequest{TokenId: args[0]})
			} else {
				t, err = svc.Admin.RevokeBootstrapToken(cmd.Context(), &pb.RevokeBootstrapTokenRequest{TokenId: args[0]})
			}
			if err != nil {
				return err
			}
			return a.app.Print(t, func() string { return "Revoked " + t.GetTokenId() + "\n" }, t.GetTokenId())
		}),
	}
}
