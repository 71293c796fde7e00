package admin

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) agentCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "List, show and revoke agents",
		Long: `Agents run on machines (host), in the installer's RAM system (installer) or for a site
(site) and do the work.`,
		Example: "  ingot agent list",
	}
	cmd.AddCommand(a.agentListCmd(), a.agentGetCmd(), a.agentRevokeCmd())
	return cmd
}

func (a commands) agentListCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Admin.ListAgents, (*pb.Agent).GetAgentId, view.Style.Agents)
	cmd := l.Command(a.app, &cobra.Command{
		Short:   "List agents",
		Long:    `List agents. Filter terms: machine_id, site, role (HOST, SITE, INSTALLER), connected (true, false).`,
		Example: "  ingot agent list --filter connected=false",
	}, "", "")
	cmd.Flags().StringVar(&l.Request.Filter, "filter", "", "terms such as role=SITE,connected=true")
	return cmd
}

func (a commands) printAgent(ag *pb.Agent) error {
	return a.app.Print(ag, func() string { return a.app.Style().Agent(ag) }, ag.GetAgentId())
}

func (a commands) agentGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get AGENT",
		Short:             "Show one agent with its certificates",
		Long:              `Show one agent: its session, its capabilities and its certificates.`,
		Example:           "  ingot agent get a-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteAgents()),
		RunE:              command.Show(a.app, a.app.Services().Admin.GetAgent, (*pb.Agent).GetAgentId, view.Style.Agent),
	}
}

func (a commands) agentRevokeCmd() *cobra.Command {
	var req pb.RevokeAgentRequest
	cmd := &cobra.Command{
		Use:   "revoke AGENT",
		Short: "Revoke an agent's certificates and end its sessions",
		Long: `Revoke one certificate of an agent, or all of them. Its live sessions end within two
seconds; it comes back only with a new token.`,
		Example:           "  ingot agent revoke a-01k --reason \"disk stolen\"",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteAgents()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.AgentId = args[0]
			svc := a.app.Services()
			ag, err := svc.Admin.RevokeAgent(cmd.Context(), &req)
			if err != nil {
				return err
			}
			return a.printAgent(ag)
		},
	}
	cmd.Flags().StringVar(&req.Fingerprint, "fingerprint", "", "only the certificate with this SHA-256")
	command.Narrows(cmd, "all certificates", "fingerprint")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why; kept in the audit log")
	return cmd
}
