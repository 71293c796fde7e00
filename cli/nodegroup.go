package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) nodeApproveCmd() *cobra.Command {
	var w workFlags
	r := &pb.ApproveDiscoveredRequest{Spec: &pb.MachineSpec{}}
	cmd := &cobra.Command{
		Use:   "approve MAC",
		Short: "Take a discovered machine into the inventory, to be installed",
		Long: `Register a machine that asked to boot (ingot site discovered) and move it to pending: it
waits for its installation. The same request id registers it once.`,
		Example: `  ingot node approve 52:54:00:12:34:56 --machine m-1 --group rack-7
  ingot node approve 52:54:00:12:34:56 --site berlin --bmc-endpoint redfish://10.0.0.7 --bmc-credentials berlin`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			r.MacAddress, r.RequestId = args[0], a.request(&w)
			op, err := svc.nodes.ApproveDiscovered(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.print(op, func() string { return op.GetMachineId() + " is pending\n" }, op.GetMachineId())
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.requestID, "request-id", "", "idempotency key; made and printed when absent")
	f.StringVar(&r.Site, "site", "", "site that has seen it (default: default)")
	f.StringVar(&r.MachineId, "machine", "", "the new machine's id; made when absent")
	f.StringVar(&r.PlanId, "plan", "", "plan that installs the node")
	f.StringVar(&r.Group, "group", "", "group whose policy holds for the node")
	f.StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	f.StringToStringVar(&r.Labels, "label", nil, "key=value; may be repeated")
	f.StringVar(&r.Spec.BmcEndpoint, "bmc-endpoint", "", "the machine's BMC")
	f.StringVar(&r.Spec.BmcCredentialsRef, "bmc-credentials", "", "what to log in to the BMC with")
	f.StringVar(&r.Spec.DefaultImageRef, "default-image-ref", "", "image that a reimage writes where it names none")
	a.must(cmd.RegisterFlagCompletionFunc("site", a.completeSites()))
	a.must(cmd.RegisterFlagCompletionFunc("plan", a.completePlans()))
	a.must(cmd.RegisterFlagCompletionFunc("group", a.completeGroups()))
	a.must(cmd.RegisterFlagCompletionFunc("default-image-ref", a.completeImages("kind=os")))
	a.must(cmd.RegisterFlagCompletionFunc("bmc-credentials", a.completeCredentials()))
	return cmd
}

func (a *app) nodeGroupCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "group",
		Short:   "Say whether installed nodes of a group need verification",
		Long:    "Machines of one group (spec.group) share a policy: whether an installed node becomes active by itself.",
		Example: "  ingot node group list\n  ingot node group set rack-7 --auto-promote",
	}
	cmd.AddCommand(a.nodeGroupSetCmd(), a.nodeGroupListCmd())
	return cmd
}

func (a *app) nodeGroupSetCmd() *cobra.Command {
	r := &pb.SetNodeGroupRequest{}
	cmd := &cobra.Command{
		Use:   "set GROUP",
		Short: "Set the policy of a group",
		Long: `Set who verifies an installed node of the group. With --auto-promote the node becomes
active by itself. Without it a person does, by taking the machine out of maintenance or, with
--explicit-promotion, only by moving the node to active.`,
		Example:           "  ingot node group set rack-7 --auto-promote\n  ingot node group set rack-7",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeGroups()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			r.Group = args[0]
			g, err := svc.nodes.SetNodeGroup(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.print(g, func() string { return a.style().NodeGroups([]*pb.NodeGroup{g}, a.now()).String() }, g.GetGroup())
		},
	}
	cmd.Flags().BoolVar(&r.AutoPromote, "auto-promote", false, "installed nodes become active by themselves")
	cmd.Flags().BoolVar(&r.ExplicitPromotion, "explicit-promotion", false,
		"leaving maintenance does not verify an installation")
	cmd.MarkFlagsMutuallyExclusive("auto-promote", "explicit-promotion")
	cmd.Flags().StringSliceVar(&r.HealthChecks, "health-checks", nil,
		"what a node must pass on its way in: reachable, inventory, provider; or none")
	return cmd
}

func (a *app) nodeGroupListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List groups",
		Long:    "List the groups that were set or that a machine names.",
		Example: "  ingot node group list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			all, err := groups(cmd.Context(), svc)
			if err != nil {
				return err
			}
			names := make([]string, len(all))
			for i, g := range all {
				names[i] = g.GetGroup()
			}
			return a.print(&pb.ListNodeGroupsResponse{Groups: all},
				func() string { return a.style().NodeGroups(all, a.now()).String() }, names...)
		},
	}
}

func groups(ctx context.Context, svc *services) ([]*pb.NodeGroup, error) {
	return pages(0, func(size int32, token string) ([]*pb.NodeGroup, string, error) {
		r, err := svc.nodes.ListNodeGroups(ctx, &pb.ListNodeGroupsRequest{PageSize: size, PageToken: token})
		return r.GetGroups(), r.GetNextPageToken(), err
	})
}

func (a *app) completeGroups() completion {
	return a.remote(func(ctx context.Context, svc *services) ([]string, error) {
		all, err := groups(ctx, svc)
		var out []string
		for _, g := range all {
			out = append(out, g.GetGroup())
		}
		return out, err
	})
}
