package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a *app) tokenCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Issue, list and revoke one-shot enrolment tokens",
		Long:    `A bootstrap token lets one agent enrol once. Its secret is shown when it is issued and never again.`,
		Example: "  ingot token issue m-1",
	}
	cmd.AddCommand(a.tokenIssueCmd(), a.tokenListCmd(), a.tokenRevokeCmd())
	return cmd
}

type tokenFlags struct {
	role     string
	lifetime time.Duration
	bare     bool
	req      pb.IssueBootstrapTokenRequest
}

func (a *app) tokenIssueCmd() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "issue [MACHINE]",
		Short: "Issue a token for one agent",
		Long: `Issue a one-shot token. Hand the string that is printed to the agent: ingot-agent enroll --token STRING. A token may
be bound to a region, a provider, a MAC address or a serial number; an agent that reports another is refused.

The call is sent once. If its answer is lost, look at ingot token list and revoke what you did not get.`,
		Example: `  ingot token issue m-1 --lifetime 1h
  ingot token issue --role site --site berlin
  ingot-agent enroll --token "$(ingot token issue m-1 --bare)"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.req.MachineId = strings.Join(args, "")
			return a.issueToken(cmd, &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.role, "role", "host", "host, site or installer")
	fl.StringVar(&f.req.Site, "site", "", "site that the agent serves, for --role site")
	fl.DurationVar(&f.lifetime, "lifetime", 0, "how long it may be used (default 24h, at most 30 days)")
	fl.StringVar(&f.req.Region, "region", "", "region that the agent must report")
	fl.StringVar(&f.req.Provider, "provider", "", "provider that the agent must report")
	fl.StringVar(&f.req.MacAddress, "mac", "", "MAC address that the machine must have")
	fl.StringVar(&f.req.Serial, "serial", "", "serial number that the machine must have")
	fl.BoolVar(&f.bare, "bare", false, "print the string and nothing else")
	fixed(cmd, "role", "host", "site", "installer")
	return cmd
}

func (a *app) issueToken(cmd *cobra.Command, f *tokenFlags) error {
	role, ok := pb.AgentRole_value["AGENT_ROLE_"+strings.ToUpper(f.role)]
	if !ok || role == 0 {
		return usagef("--role must be host, site or installer, not %q", f.role)
	}
	a.subject.machine = f.req.GetMachineId()
	f.req.Role = pb.AgentRole(role)
	if f.lifetime != 0 {
		f.req.Lifetime = durationpb.New(f.lifetime)
	}
	svc, err := a.services()
	if err != nil {
		return err
	}
	r, err := svc.admin.IssueBootstrapToken(cmd.Context(), &f.req)
	if err != nil {
		return err
	}
	if f.bare {
		return a.write(r.GetBundle() + "\n")
	}
	return a.print(r, func() string {
		t := r.GetToken()
		return "Token " + t.GetTokenId() + ", good once until " + view.Time(t.GetExpiresAt()) + ". Shown only now:\n\n" +
			"    ingot-agent enroll --token " + r.GetBundle() + "\n"
	}, r.GetToken().GetTokenId())
}

func (a *app) tokenListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List tokens",
		Long:    `List enrolment tokens: open, used, expired and revoked.`,
		Example: "  ingot token list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			tokens, err := pages(0, func(size int32, page string) ([]*pb.BootstrapToken, string, error) {
				r, err := svc.admin.ListBootstrapTokens(cmd.Context(), &pb.ListBootstrapTokensRequest{PageSize: size, PageToken: page})
				return r.GetTokens(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(tokens))
			for i, t := range tokens {
				names[i] = t.GetTokenId()
			}
			return a.print(&pb.ListBootstrapTokensResponse{Tokens: tokens}, func() string {
				return a.style().Tokens(tokens, a.now()).String()
			}, names...)
		},
	}
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke TOKEN",
		Short:             "End a token that has not been used",
		Long:              `End a token that has not been used. One that has been used is ended by revoking its agent.`,
		Example:           "  ingot token revoke t-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeTokens()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			t, err := svc.admin.RevokeBootstrapToken(cmd.Context(), &pb.RevokeBootstrapTokenRequest{TokenId: args[0]})
			if err != nil {
				return err
			}
			return a.print(t, func() string { return "Revoked " + t.GetTokenId() + "\n" }, t.GetTokenId())
		},
	}
}
