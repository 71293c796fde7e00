package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/view"
)

// completion is what the shell asks for; see cobra's ValidArgsFunction.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeAt completes the argument at each position with the function there. Past the last there is nothing.
func completeAt(fns ...completion) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(fns) || fns[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fns[len(args)](cmd, args, prefix)
	}
}

// remote completes with what the server says, within two seconds: a shell must not hang on a tab.
func (a *app) remote(read func(context.Context, *services) ([]string, error)) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		a.flags.retryFor = 0
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		svc, err := a.services()
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

func (a *app) completeMachines() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.machines.ListMachines(ctx, &pb.ListMachinesRequest{PageSize: 1000})
		var out []string
		for _, m := range resp.GetMachines() {
			st := m.GetStatus()
			out = append(out, m.GetMachineId()+"\t"+view.Phase(st.GetPhase())+" "+view.Effective(st.GetEffectiveState()))
		}
		return out, err
	})
}

func (a *app) completeOperations() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.operations.ListOperations(ctx, &pb.ListOperationsRequest{PageSize: 100})
		var out []string
		for _, op := range resp.GetOperations() {
			out = append(out, op.GetOperationId()+"\t"+op.GetMachineId()+" "+op.GetType().String()+" "+op.GetPhase().String())
		}
		return out, err
	})
}

func (a *app) completePlans() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.plans.ListPlans(ctx, &pb.ListPlansRequest{})
		var out []string
		for _, p := range resp.GetPlans() {
			out = append(out, p.GetPlanId()+"\t"+view.Clean(p.GetDisplayName()))
		}
		return out, err
	})
}

func (a *app) completeAgents() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.admin.ListAgents(ctx, &pb.ListAgentsRequest{PageSize: 1000})
		var out []string
		for _, ag := range resp.GetAgents() {
			out = append(out, ag.GetAgentId()+"\t"+view.Role(ag.GetRole())+" "+ag.GetMachineId())
		}
		return out, err
	})
}

func (a *app) completeTokens() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		var out []string
		mine, err := svc.admin.ListAPITokens(ctx, &pb.ListAPITokensRequest{PageSize: 1000})
		for _, t := range mine.GetTokens() {
			if t.GetTokenId() != "" {
				out = append(out, t.GetTokenId()+"\t"+t.GetName())
			}
		}
		if err != nil {
			return nil, err
		}
		resp, err := svc.admin.ListBootstrapTokens(ctx, &pb.ListBootstrapTokensRequest{PageSize: 1000})
		for _, t := range resp.GetTokens() {
			out = append(out, t.GetTokenId()+"\t"+t.GetMachineId())
		}
		return out, err
	})
}

func (a *app) completeImages(filter string) completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.admin.ListImages(ctx, &pb.ListImagesRequest{Filter: filter, PageSize: 1000})
		var out []string
		for _, im := range resp.GetImages() {
			out = append(out, im.GetImageRef()+"\t"+im.GetKind()+" "+im.GetArch()+" "+view.Bytes(im.GetSizeBytes()))
		}
		return out, err
	})
}

func (a *app) completeSites() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.admin.ListSites(ctx, &pb.ListSitesRequest{})
		var out []string
		for _, s := range resp.GetSites() {
			out = append(out, s.GetSite())
		}
		return out, err
	})
}

func (a *app) completeCredentials() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.admin.ListBMCCredentials(ctx, &pb.ListBMCCredentialsRequest{})
		var out []string
		for _, c := range resp.GetCredentials() {
			out = append(out, c.GetCredentialsRef()+"\t"+view.Clean(c.GetUsername()))
		}
		return out, err
	})
}

func (a *app) completeBudgets() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.budgets.ListBudgets(ctx, &pb.ListBudgetsRequest{})
		var out []string
		for _, b := range resp.GetBudgets() {
			out = append(out, b.GetName())
		}
		return out, err
	})
}

func (a *app) completeScripts() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.scripts.ListScripts(ctx, &pb.ListScriptsRequest{})
		var out []string
		for _, s := range resp.GetScripts() {
			out = append(out, s.GetScriptRef())
		}
		return out, err
	})
}

func (a *app) completeClusters() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.clusters.ListClusters(ctx, &pb.ListClustersRequest{})
		var out []string
		for _, c := range resp.GetClusters() {
			out = append(out, c.GetClusterRef()+"\t"+view.Clean(c.GetServer()))
		}
		return out, err
	})
}

func (a *app) completeSSHCredentials() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.scripts.ListSSHCredentials(ctx, &pb.ListSSHCredentialsRequest{})
		var out []string
		for _, c := range resp.GetCredentials() {
			out = append(out, c.GetCredentialsRef()+"\t"+view.Clean(c.GetUsername()))
		}
		return out, err
	})
}

func (a *app) completeMAASRegions() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		resp, err := svc.maas.ListMAASRegions(ctx, &pb.ListMAASRegionsRequest{})
		var out []string
		for _, m := range resp.GetRegions() {
			out = append(out, m.GetRegionRef()+"\t"+view.Clean(m.GetEndpoint()))
		}
		return out, err
	})
}

// completeSpec completes the flags of a machine's spec whose values the server knows.
func (a *app) completeSpec(cmd *cobra.Command) {
	a.must(cmd.RegisterFlagCompletionFunc("site", a.completeSites()))
	a.must(cmd.RegisterFlagCompletionFunc("target-cluster-ref", a.completeClusters()))
	a.must(cmd.RegisterFlagCompletionFunc("default-image-ref", a.completeImages("kind=os")))
	a.must(cmd.RegisterFlagCompletionFunc("bmc-credentials-ref", a.completeCredentials()))
	a.must(cmd.RegisterFlagCompletionFunc("ssh-credentials-ref", a.completeSSHCredentials()))
	a.must(cmd.RegisterFlagCompletionFunc("provider-ref", a.completeMAASRegions()))
}

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := client.Load(a.configPath())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeWorkflows() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		r, err := svc.workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{PageSize: 100})
		var out []string
		for _, w := range r.GetWorkflows() {
			out = append(out, w.GetWorkflowId()+"\t"+w.GetMachineId())
		}
		return out, err
	})
}

// among completes one of a few words.
func among(words ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
