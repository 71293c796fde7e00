package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/view"
)

// Completion is what the shell asks for; see cobra's ValidArgsFunction.
type Completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// CompleteAt completes the argument at each position with the function there. Past the last there is nothing.
func CompleteAt(fns ...Completion) Completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(fns) || fns[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fns[len(args)](cmd, args, prefix)
	}
}

// Remote completes with the server's answer, within two seconds: a shell must not hang on a tab.
func (a *App) Remote(read func(context.Context, *Services) ([]string, error)) Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		a.Flags.RetryFor = 0
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		out, err := read(ctx, a.Services())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteList completes with one page of a list, of the size in request or of 1,000 entries. text returns an entry's
// word, and after a tab what the shell shows beside it.
func CompleteList[T, Q proto.Message, R page](a *App, list call[Q, R], request Q, text func(T) string) Completion {
	return a.Remote(func(ctx context.Context, _ *Services) ([]string, error) {
		if field(request, "page_size").Int() == 0 {
			set(request, "page_size", int32(1000))
		}
		r, err := list(ctx, request)
		if err != nil {
			return nil, err
		}
		return Names(entries[T](r), text), nil
	})
}

// CompleteMachines completes the ids of machines.
func (a *App) CompleteMachines() Completion {
	return CompleteList(a, a.Services().Machines.ListMachines, &pb.ListMachinesRequest{},
		func(m *pb.Machine) string {
			st := m.GetStatus()
			return m.GetMachineId() + "\t" + view.Phase(st.GetPhase()) + " " + view.Effective(st.GetEffectiveState())
		})
}

// CompleteViews completes the names of saved views.
func (a *App) CompleteViews() Completion {
	return CompleteList(a, a.Services().Views.ListViews, &pb.ListViewsRequest{},
		func(v *pb.View) string { return v.GetName() + "\t" + view.Clean(v.GetTitle()) })
}

// CompleteOperations completes the ids of the newest operations.
func (a *App) CompleteOperations() Completion {
	return CompleteList(a, a.Services().Operations.ListOperations, &pb.ListOperationsRequest{PageSize: 100},
		func(op *pb.Operation) string {
			return op.GetOperationId() + "\t" + op.GetMachineId() + " " + op.GetType().String() + " " + op.GetPhase().String()
		})
}

// CompletePlans completes the ids of plans.
func (a *App) CompletePlans() Completion {
	return CompleteList(a, a.Services().Plans.ListPlans, &pb.ListPlansRequest{},
		func(p *pb.Plan) string { return p.GetPlanId() + "\t" + view.Clean(p.GetDisplayName()) })
}

// CompleteAgents completes the ids of agents.
func (a *App) CompleteAgents() Completion {
	return CompleteList(a, a.Services().Admin.ListAgents, &pb.ListAgentsRequest{},
		func(ag *pb.Agent) string {
			return ag.GetAgentId() + "\t" + view.Role(ag.GetRole()) + " " + ag.GetMachineId()
		})
}

// CompleteTokens completes the ids of tokens.
func (a *App) CompleteTokens() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		var out []string
		mine, err := svc.Admin.ListAPITokens(ctx, &pb.ListAPITokensRequest{PageSize: 1000})
		for _, t := range mine.GetTokens() {
			if t.GetTokenId() != "" {
				out = append(out, t.GetTokenId()+"\t"+t.GetName())
			}
		}
		if err != nil {
			return nil, err
		}
		resp, err := svc.Admin.ListBootstrapTokens(ctx, &pb.ListBootstrapTokensRequest{PageSize: 1000})
		for _, t := range resp.GetTokens() {
			out = append(out, t.GetTokenId()+"\t"+t.GetMachineId())
		}
		return out, err
	})
}

// CompleteImages completes the names of the images that pass a filter.
func (a *App) CompleteImages(filter string) Completion {
	return CompleteList(a, a.Services().Admin.ListImages, &pb.ListImagesRequest{Filter: filter},
		func(im *pb.Image) string {
			return im.GetImageRef() + "\t" + im.GetKind() + " " + im.GetArch() + " " + view.Bytes(im.GetSizeBytes())
		})
}

// CompleteSites completes the names of sites.
func (a *App) CompleteSites() Completion {
	return CompleteList(a, a.Services().Admin.ListSites, &pb.ListSitesRequest{}, (*pb.Site).GetSite)
}

// CompleteCredentials completes the names of BMC credentials.
func (a *App) CompleteCredentials() Completion {
	return CompleteList(a, a.Services().Admin.ListBMCCredentials, &pb.ListBMCCredentialsRequest{},
		func(c *pb.BMCCredentials) string { return c.GetCredentialsRef() + "\t" + view.Clean(c.GetUsername()) })
}

// CompleteBudgets completes the names of budgets.
func (a *App) CompleteBudgets() Completion {
	return CompleteList(a, a.Services().Budgets.ListBudgets, &pb.ListBudgetsRequest{}, (*pb.Budget).GetName)
}

// CompleteScripts completes the names of scripts.
func (a *App) CompleteScripts() Completion {
	return CompleteList(a, a.Services().Scripts.ListScripts, &pb.ListScriptsRequest{}, (*pb.Script).GetScriptRef)
}

// CompleteClusters completes the names of clusters.
func (a *App) CompleteClusters() Completion {
	return CompleteList(a, a.Services().Clusters.ListClusters, &pb.ListClustersRequest{},
		func(c *pb.Cluster) string { return c.GetClusterRef() + "\t" + view.Clean(c.GetServer()) })
}

// CompleteSSHCredentials completes the names of SSH credentials.
func (a *App) CompleteSSHCredentials() Completion {
	return CompleteList(a, a.Services().Scripts.ListSSHCredentials, &pb.ListSSHCredentialsRequest{},
		func(c *pb.SSHCredentials) string { return c.GetCredentialsRef() + "\t" + view.Clean(c.GetUsername()) })
}

// CompleteMAASRegions completes the names of MAAS regions.
func (a *App) CompleteMAASRegions() Completion {
	return CompleteList(a, a.Services().MAAS.ListMAASRegions, &pb.ListMAASRegionsRequest{},
		func(m *pb.MAASRegion) string { return m.GetRegionRef() + "\t" + view.Clean(m.GetEndpoint()) })
}

// CompleteSpec completes the flags of a machine's spec whose values the server knows.
func (a *App) CompleteSpec(cmd *cobra.Command) {
	a.Must(cmd.RegisterFlagCompletionFunc("site", a.CompleteSites()))
	a.Must(cmd.RegisterFlagCompletionFunc("target-cluster-ref", a.CompleteClusters()))
	a.Must(cmd.RegisterFlagCompletionFunc("default-image-ref", a.CompleteImages("kind=os")))
	a.Must(cmd.RegisterFlagCompletionFunc("bmc-credentials-ref", a.CompleteCredentials()))
	a.Must(cmd.RegisterFlagCompletionFunc("ssh-credentials-ref", a.CompleteSSHCredentials()))
	a.Must(cmd.RegisterFlagCompletionFunc("provider-ref", a.CompleteMAASRegions()))
}

// CompleteContexts completes the names of the configuration's contexts.
func (a *App) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := client.Load(a.ConfigPath())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}

// CompleteWorkflows completes the ids of workflows.
func (a *App) CompleteWorkflows() Completion {
	return CompleteList(a, a.Services().Workflows.ListWorkflows, &pb.ListWorkflowsRequest{PageSize: 100},
		func(w *pb.Workflow) string { return w.GetWorkflowId() + "\t" + w.GetMachineId() })
}

// Among completes one of a few words.
func Among(words ...string) Completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
