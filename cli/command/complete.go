package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

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

// Remote completes with what the server says, within two seconds: a shell must not hang on a tab.
func (a *App) Remote(read func(context.Context, *Services) ([]string, error)) Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		a.Flags.RetryFor = 0
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		svc, err := a.Services()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		out, err := read(ctx, svc)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteMachines completes the ids of machines.
func (a *App) CompleteMachines() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Machines.ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1000})
		var out []string
		for _, m := range resp.GetMachines() {
			st := m.GetStatus()
			out = append(out, m.GetMachineId()+"\t"+view.Phase(st.GetPhase())+" "+view.Effective(st.GetEffectiveState()))
		}
		return out, err
	})
}

// CompleteViews completes the names of saved views.
func (a *App) CompleteViews() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Views.ListViews(ctx, &pb.ListViewsRequest{PageSize: 1000})
		var out []string
		for _, v := range resp.GetViews() {
			out = append(out, v.GetName()+"\t"+view.Clean(v.GetTitle()))
		}
		return out, err
	})
}

// CompleteOperations completes the ids of the newest operations.
func (a *App) CompleteOperations() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Operations.ListOperations(ctx, &pb.ListOperationsRequest{PageSize: 100})
		var out []string
		for _, op := range resp.GetOperations() {
			out = append(out, op.GetOperationId()+"\t"+op.GetMachineId()+" "+op.GetType().String()+" "+op.GetPhase().String())
		}
		return out, err
	})
}

// CompletePlans completes the ids of plans.
func (a *App) CompletePlans() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Plans.ListPlans(ctx, &pb.ListPlansRequest{})
		var out []string
		for _, p := range resp.GetPlans() {
			out = append(out, p.GetPlanId()+"\t"+view.Clean(p.GetDisplayName()))
		}
		return out, err
	})
}

// CompleteAgents completes the ids of agents.
func (a *App) CompleteAgents() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Admin.ListAgents(ctx, &pb.ListAgentsRequest{PageSize: 1000})
		var out []string
		for _, ag := range resp.GetAgents() {
			out = append(out, ag.GetAgentId()+"\t"+view.Role(ag.GetRole())+" "+ag.GetMachineId())
		}
		return out, err
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
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Admin.ListImages(ctx, &pb.ListImagesRequest{Filter: filter, PageSize: 1000})
		var out []string
		for _, im := range resp.GetImages() {
			out = append(out, im.GetImageRef()+"\t"+im.GetKind()+" "+im.GetArch()+" "+view.Bytes(im.GetSizeBytes()))
		}
		return out, err
	})
}

// CompleteSites completes the names of sites.
func (a *App) CompleteSites() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Admin.ListSites(ctx, &pb.ListSitesRequest{})
		var out []string
		for _, s := range resp.GetSites() {
			out = append(out, s.GetSite())
		}
		return out, err
	})
}

// CompleteCredentials completes the names of BMC credentials.
func (a *App) CompleteCredentials() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Admin.ListBMCCredentials(ctx, &pb.ListBMCCredentialsRequest{})
		var out []string
		for _, c := range resp.GetCredentials() {
			out = append(out, c.GetCredentialsRef()+"\t"+view.Clean(c.GetUsername()))
		}
		return out, err
	})
}

// CompleteBudgets completes the names of budgets.
func (a *App) CompleteBudgets() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Budgets.ListBudgets(ctx, &pb.ListBudgetsRequest{})
		var out []string
		for _, b := range resp.GetBudgets() {
			out = append(out, b.GetName())
		}
		return out, err
	})
}

// CompleteScripts completes the names of scripts.
func (a *App) CompleteScripts() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Scripts.ListScripts(ctx, &pb.ListScriptsRequest{})
		var out []string
		for _, s := range resp.GetScripts() {
			out = append(out, s.GetScriptRef())
		}
		return out, err
	})
}

// CompleteClusters completes the names of clusters.
func (a *App) CompleteClusters() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Clusters.ListClusters(ctx, &pb.ListClustersRequest{})
		var out []string
		for _, c := range resp.GetClusters() {
			out = append(out, c.GetClusterRef()+"\t"+view.Clean(c.GetServer()))
		}
		return out, err
	})
}

// CompleteSSHCredentials completes the names of SSH credentials.
func (a *App) CompleteSSHCredentials() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.Scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{})
		var out []string
		for _, c := range resp.GetCredentials() {
			out = append(out, c.GetCredentialsRef()+"\t"+view.Clean(c.GetUsername()))
		}
		return out, err
	})
}

// CompleteMAASRegions completes the names of MAAS regions.
func (a *App) CompleteMAASRegions() Completion {
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		resp, err := svc.MAAS.ListMAASRegions(ctx, &pb.ListMAASRegionsRequest{})
		var out []string
		for _, m := range resp.GetRegions() {
			out = append(out, m.GetRegionRef()+"\t"+view.Clean(m.GetEndpoint()))
		}
		return out, err
	})
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
	return a.Remote(func(ctx context.Context, svc *Services) ([]string, error) {
		r, err := svc.Workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{PageSize: 100})
		var out []string
		for _, w := range r.GetWorkflows() {
			out = append(out, w.GetWorkflowId()+"\t"+w.GetMachineId())
		}
		return out, err
	})
}

// Among completes one of a few words.
func Among(words ...string) Completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
