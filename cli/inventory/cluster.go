package inventory

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) clusterCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Kubernetes clusters that machines join and leave",
		Long: `Clusters have a name, which machines refer to: ingot machine update MACHINE
--target-cluster-ref NAME. What one logs in with is stored encrypted, and reaches only a site agent
that has work in the cluster.

ingot cluster join MACHINE and its like run the built-in plans; repave-join and upgrade, and plans
of your own, are run with ingot run start MACHINE --plan PLAN.`,
		Example: "  ingot cluster set prod-1 --kubeconfig ingot.kubeconfig\n  ingot cluster list",
	}
	cmd.AddCommand(a.clusterSetCmd(), a.clusterListCmd(), a.clusterGetCmd(), a.clusterDeleteCmd(),
		a.clusterJoinCmd(), a.clusterDrainCmd(), a.clusterUncordonCmd(), a.clusterLeaveCmd())
	return cmd
}

func (a commands) clusterSetCmd() *cobra.Command {
	var file, name string
	cmd := &cobra.Command{
		Use:   "set NAME --kubeconfig FILE",
		Short: "Store a cluster, from a kubeconfig",
		Long: `Store a cluster under a name, or replace it: address and CA of its API server, and a bearer
token or a client certificate. They are taken from a kubeconfig file that holds them itself;
programs that fetch credentials are not run. docs/howto/clusters.md has a role with what Ingot needs and
no more.`,
		Example: "  ingot cluster set prod-1 --kubeconfig ingot.kubeconfig\n  ingot cluster set prod-1 " +
			"--kubeconfig all.yaml --kube-context prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteClusters()),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := a.app.ReadInput(file)
			if err != nil {
				return err
			}
			req, err := fromKubeconfig(raw, name)
			if err != nil {
				return command.Usagef("kubeconfig %s: %v", file, err)
			}
			req.ClusterRef = args[0]
			svc := a.app.Services()
			c, err := svc.Clusters.SetCluster(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.app.Print(c, func() string {
				return fmt.Sprintf("Stored %s, version %d: %s\n", c.GetClusterRef(), c.GetVersion(), c.GetServer())
			}, c.GetClusterRef())
		},
	}
	cmd.Flags().StringVar(&file, "kubeconfig", "", "kubeconfig file; - is standard input")
	cmd.Flags().StringVar(&name, "kube-context", "", "context of the kubeconfig; its current one by default")
	a.app.Must(cmd.MarkFlagRequired("kubeconfig"))
	return cmd
}

func (a commands) clusterListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Clusters.ListClusters, (*pb.Cluster).GetClusterRef, view.Style.Clusters).
		Command(a.app, &cobra.Command{
			Short:   "List clusters",
			Long:    `List the clusters that machines can be joined to.`,
			Example: "  ingot cluster list",
		}, "cluster_ref=prod-*", "updated_at desc")
}

func (a commands) clusterGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Show a cluster",
		Long: `Show a cluster: its API server, and the hashes of its CA as kubeadm pins them.
Credentials are never shown.`,
		Example:           "  ingot cluster get prod-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteClusters()),
		RunE: command.Show(
			a.app,
			a.app.Services().Clusters.GetCluster,
			(*pb.Cluster).GetClusterRef,
			view.Style.Cluster,
		),
	}
}

func (a commands) clusterDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Forget a cluster that no machine names",
		Long:              `Forget a cluster that no machine names, with its credentials. In the cluster nothing changes.`,
		Example:           "  ingot cluster delete prod-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteClusters()),
		RunE:              command.Do(a.app, "Deleted", a.app.Services().Clusters.DeleteCluster, (*pb.Cluster).GetClusterRef),
	}
}
