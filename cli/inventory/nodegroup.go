package inventory

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) nodeApproveCmd() *cobra.Command {
	var w command.WorkFlags
	r := &pb.ApproveDiscoveredRequest{Spec: &pb.MachineSpec{}}
	cmd := &cobra.Command{
		Use:   "approve MAC",
		Short: "Take a discovered machine into the inventory, to be installed",
		Long: `Register a machine that asked to boot (ingot site discovered) and move it to pending: it
waits for its installation. The same request id registers it once.`,
		Example: `  ingot node approve 52:54:00:12:34:56 --machine m-1 --group rack-7
  ingot node approve 52:54:00:12:34:56 --site berlin --bmc-endpoint redfish://10.0.0.7 --bmc-credentials berlin`,
		Args: cobra.ExactArgs(1),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			r.MacAddress, r.RequestId = args[0], a.app.Request(&w)
			op, err := svc.Nodes.ApproveDiscovered(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(op, func() string { return op.GetMachineId() + " is pending\n" }, op.GetMachineId())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&w.RequestID, "request-id", "", "idempotency key; made and printed when absent")
	f.StringVar(&r.Site, "site", "", "site that has seen it (default: default)")
	f.StringVar(&r.MachineId, "machine", "", "the new machine's id; made when absent")
	f.StringVar(&r.PlanId, "plan", "", "plan that installs the node")
	f.StringVar(&r.Group, "group", "", "group whose policy holds for the node")
	f.StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	f.StringToStringVar(&r.Labels, "label", nil, "key=value; may be repeated")
	f.StringVar(&r.Spec.BmcEndpoint, "bmc-endpoint", "", "the machine's BMC")
	f.StringVar(&r.Spec.BmcCredentialsRef, "bmc-credentials", "", "what to log in to the BMC with")
	f.StringVar(&r.Spec.DefaultImageRef, "default-image-ref", "", "image that a reimage writes where it names none")
	a.app.Must(cmd.RegisterFlagCompletionFunc("site", a.app.CompleteSites()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("group", a.completeGroups()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("default-image-ref", a.app.CompleteImages("kind=os")))
	a.app.Must(cmd.RegisterFlagCompletionFunc("bmc-credentials", a.app.CompleteCredentials()))
	return cmd
}

func (a commands) nodeGroupCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "group",
		Short:   "Say whether installed nodes of a group need verification",
		Long:    "Machines of one group (spec.group) share a policy: whether an installed node becomes active by itself.",
		Example: "  ingot node group list\n  ingot node group set rack-7 --auto-promote",
	}
	cmd.AddCommand(a.nodeGroupSetCmd(), a.nodeGroupListCmd())
	return cmd
}

func (a commands) nodeGroupSetCmd() *cobra.Command {
	r := &pb.SetNodeGroupRequest{}
	cmd := &cobra.Command{
		Use:   "set GROUP",
		Short: "Set the policy of a group",
		Long: `Set who verifies an installed node of the group. With --auto-promote the node becomes
active by itself. Without it a person does, by taking the machine out of maintenance or, with
--explicit-promotion, only by moving the node to active.`,
		Example:           "  ingot node group set rack-7 --auto-promote\n  ingot node group set rack-7",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeGroups()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			r.Group = args[0]
			g, err := svc.Nodes.SetNodeGroup(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(g, func() string { return command.Table(a.app, view.Style.NodeGroups, g) }, g.GetGroup())
		}),
	}
	cmd.Flags().BoolVar(&r.AutoPromote, "auto-promote", false, "installed nodes become active by themselves")
	cmd.Flags().BoolVar(&r.ExplicitPromotion, "explicit-promotion", false,
		"leaving maintenance does not verify an installation")
	cmd.MarkFlagsMutuallyExclusive("auto-promote", "explicit-promotion")
	cmd.Flags().StringSliceVar(&r.HealthChecks, "health-checks", nil,
		"what a node must pass on its way in: reachable, inventory, provider; or none")
	return cmd
}

func (a commands) nodeGroupListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Nodes.ListNodeGroups, (*pb.NodeGroup).GetGroup, view.Style.NodeGroups).
		Command(a.app, &cobra.Command{
			Short:   "List groups",
			Long:    "List the groups that were set or that a machine names.",
			Example: "  ingot node group list",
		}, "auto_promote=true", "nodes desc")
}

func (a commands) completeGroups() command.Completion {
	return command.CompleteList(a.app, a.app.Services().Nodes.ListNodeGroups, &pb.ListNodeGroupsRequest{},
		(*pb.NodeGroup).GetGroup)
}
