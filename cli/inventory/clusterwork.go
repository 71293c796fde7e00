package inventory

import (
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) clusterJoinCmd() *cobra.Command {
	return a.app.RunsPlan(&cobra.Command{
		Use:   "join MACHINE",
		Short: "Join a machine to its cluster with kubeadm, and see its Node ready",
		Long: `Join a machine in maintenance to the cluster that it names (target_cluster_ref), with the
kubeadm that is on it, and wait until its Node is ready. A machine that is in the cluster already is
left as it is; one of another cluster is refused.` + command.WaitHelp,
		Example: "  ingot machine update m-1 --target-cluster-ref prod-1\n  ingot cluster join m-1",
	}, "JOIN_CLUSTER", "")
}

func (a commands) clusterDrainCmd() *cobra.Command {
	return a.app.RunsPlan(&cobra.Command{
		Use:   "drain MACHINE",
		Short: "Cordon a machine's Node and evict its pods",
		Long: `Cordon the Node of a machine and evict its pods, as far as their disruption budgets allow.
Pods of DaemonSets and static pods stay. Pods that nothing would start again, or that keep data on
the machine, stop the drain before anything is evicted: a plan of your own with a step drain says
what else may go. A drain that fails takes its cordon back, and names what is left.` + command.WaitHelp,
		Example: "  ingot cluster drain m-1\n  ingot cluster drain m-1 --request-id maintenance-17",
	}, "", "drain")
}

func (a commands) clusterUncordonCmd() *cobra.Command {
	return a.app.RunsPlan(&cobra.Command{
		Use:     "uncordon MACHINE",
		Short:   "Let pods be placed on a machine's Node again",
		Long:    `Let pods be placed on the Node of a machine again, after a drain.` + command.WaitHelp,
		Example: "  ingot cluster uncordon m-1",
	}, "", "uncordon")
}

func (a commands) clusterLeaveCmd() *cobra.Command {
	return a.app.RunsPlan(&cobra.Command{
		Use:   "leave MACHINE",
		Short: "Drain a machine in maintenance and take its Node out of the cluster",
		Long: `Drain a machine in maintenance, with what pods keep on its own disk, and delete its Node.
The kubelet on the machine is left as it is: reimage the machine, or run kubeadm reset on it, before
it joins another cluster.` + command.WaitHelp,
		Example: "  ingot cluster leave m-1",
	}, "", "leave")
}
