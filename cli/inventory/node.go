package inventory

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/ids"
)

func (a commands) nodeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Aliases: []string{"nodes"},
		Short:   "See and move machines through their life in the inventory",
		Long: `A node is a machine's place in its life: discovered, pending, installing, installed,
active, and on to its retirement. ingot node get shows where it may go from where it is.`,
		Example: "  ingot node list --state install_failed\n  ingot node approve 52:54:00:12:34:56 --machine m-1\n  ingot " +
			"node transition m-1 active --comment \"burn-in passed\"",
	}
	cmd.AddCommand(a.nodeListCmd(), a.nodeGetCmd(), a.nodeUpdateCmd(), a.nodeTransitionCmd(), a.nodeHistoryCmd(),
		a.nodeApproveCmd(), a.nodeGroupCmd())
	return cmd
}

// nodeStates are the states as they are typed.
func nodeStates() []string {
	var out []string
	for n := int32(1); pb.NodeState_name[n] != ""; n++ {
		out = append(out, strings.ToLower(view.NodeState(pb.NodeState(n))))
	}
	return out
}

func (a commands) nodeListCmd() *cobra.Command {
	var state, filter string
	l := command.ListOf(a.app.Services().Nodes.ListNodes, (*pb.Node).GetNodeId, view.Style.Nodes)
	l.Prepare = func([]string) error {
		l.Request.Filter = command.JoinFilter("node_state", state, "", filter)
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Short:   "List nodes",
		Long:    "List nodes by id, with the state of their installation.",
		Example: "  ingot node list --state pending\n  ingot node list --filter group=g1 -o json",
	}, "", "")
	cmd.Flags().StringVar(&state, "state", "", "only this state, such as install_failed")
	cmd.Flags().StringVar(&filter, "filter", "", "further terms, as with ingot list")
	cmd.Flags().IntVar(&l.Limit, "limit", 0, "at most so many; 0 is all")
	command.Fixed(cmd, "state", nodeStates()...)
	return cmd
}

func (a commands) nodeGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get MACHINE",
		Short: "Show one node and where it may go from here",
		Long: "Show one node: its state, its installation, what an installer reported last, and where an " +
			"operator may move it.",
		Example:           "  ingot node get m-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE:              command.Show(a.app, a.app.Services().Nodes.GetNode, (*pb.Node).GetNodeId, view.Style.Node),
	}
}

func (a commands) printNode(n *pb.Node) error {
	return a.app.Print(n, func() string { return a.app.Style().Node(n) }, n.GetNodeId())
}

func (a commands) nodeUpdateCmd() *cobra.Command {
	var plan, group string
	var adopt bool
	cmd := &cobra.Command{
		Use:   "update MACHINE…",
		Short: "Set the plan that installs nodes, or their group, or accept what their provider says",
		Long: `Set the plan that a reimage of the node runs where it names none, or the node's group. An
empty value clears it. With --adopt-provider-state what the node's provider says now is accepted,
although it does not go with the node's state: work that destroys data is allowed again until the
provider says something else.`,
		Example: `  ingot node update m-1 --plan repave-small
  ingot node update --select rack=r7 --group rack-7
  ingot node update m-1 --adopt-provider-state`,
	}
	cmd.Flags().StringVar(&plan, "plan", "", "plan that installs the node")
	cmd.Flags().StringVar(&group, "group", "", "group whose policy holds for the node")
	cmd.Flags().BoolVar(&adopt, "adopt-provider-state", false, "accept what the node's provider says now")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("plan") && !cmd.Flags().Changed("group") && !adopt {
			return command.Usagef("nothing to set: give --plan, --group or --adopt-provider-state")
		}
		return nil
	}
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("group", a.completeGroups()))
	return a.app.ForEach(cmd, "The nodes of %d machines are changed.",
		func(ctx context.Context, svc *command.Services, id string) error {
			r := &pb.UpdateNodeRequest{NodeId: id, PlanId: plan, Group: group, AdoptProviderState: adopt,
				UpdateMask: &fieldmaskpb.FieldMask{}}
			for flag, field := range map[string]string{"plan": "plan_id", "group": "group"} {
				if cmd.Flags().Changed(flag) {
					r.UpdateMask.Paths = append(r.UpdateMask.Paths, field)
				}
			}
			r.UpdateMask.Normalize()
			n, err := svc.Nodes.UpdateNode(ctx, r)
			if err != nil {
				return err
			}
			return a.printNode(n)
		})
}

func (a commands) nodeTransitionCmd() *cobra.Command {
	var w command.WorkFlags
	var yes bool
	r := &pb.TransitionNodeRequest{}
	cmd := &cobra.Command{
		Use:   "transition MACHINE STATE",
		Short: "Move a node to another state",
		Long: `Move a node to another state, and start the work that the state stands for: reprovision reimages the machine,
deprovisioning erases its disks, after a confirmation. Moves that stand for no work end at once.

A node whose installations have failed three times takes another plan (ingot node update) and --force.` +
			command.WaitHelp,
		Example: `  ingot node transition m-1 active --comment "burn-in passed"
  ingot node transition m-1 pending --force
  ingot node transition m-1 reprovision --image ubuntu-2204 --dry-run`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines(),
			cobra.FixedCompletions(nodeStates(), cobra.ShellCompDirectiveNoFileComp)),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, ok := pb.NodeState_value["NODE_STATE_"+command.EnumName(args[1])]
			if !ok || state == 0 {
				return command.Usagef("%q is none of %s", args[1], strings.Join(nodeStates(), ", "))
			}
			r.NodeId, r.State = args[0], pb.NodeState(state)
			if r.GetDryRun() {
				return a.previewTransition(cmd, r)
			}
			if r.GetState() == pb.NodeState_NODE_STATE_DEPROVISIONING {
				if err := a.app.Confirm(yes, "The data on the disks of "+args[0]+" is lost.", args[0]); err != nil {
					return err
				}
			}
			return a.app.Work(
				cmd,
				args[0],
				&w,
				func(ctx context.Context, svc *command.Services, id string, _ int32) (*pb.Operation, error) {
					r.RequestId = id
					return svc.Nodes.TransitionNode(ctx, r)
				},
			)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	cmd.Flags().BoolVar(&r.Force, "force", false, "leave install_failed, and reset its counter")
	cmd.Flags().BoolVar(&r.Purge, "purge", false, "retire a node that is active or offline without a decommission (admin)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before data is lost")
	cmd.Flags().StringVar(&r.ImageRef, "image", "",
		"image that reprovision writes (default: the machine's or the server's)")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "say what would happen, and do nothing")
	a.app.Must(cmd.RegisterFlagCompletionFunc("image", a.app.CompleteImages("kind=os")))
	return cmd
}

// previewTransition prints the operation that a move would start.
func (a commands) previewTransition(cmd *cobra.Command, r *pb.TransitionNodeRequest) error {
	a.app.Subject.Machine, r.RequestId = r.GetNodeId(), ids.New("req")
	svc := a.app.Services()
	op, err := svc.Nodes.TransitionNode(cmd.Context(), r)
	if err != nil {
		return err
	}
	return a.app.Print(op, func() string {
		text := r.GetNodeId() + " would become " + strings.ToLower(view.NodeState(r.GetState()))
		if op.GetPhase() != pb.Operation_SUCCEEDED {
			text += ", and operation " + op.GetType().String() + " would start with plan " + op.GetPlanId()
		}
		for sentence := range strings.SplitSeq(op.GetParams()["not_asked"], "\n") {
			if sentence != "" {
				text += "\nNot known before: " + view.Clean(sentence)
			}
		}
		return text + "\n"
	}, r.GetNodeId())
}

func (a commands) nodeHistoryCmd() *cobra.Command {
	r := &pb.GetNodeHistoryRequest{}
	cmd := &cobra.Command{
		Use:               "history MACHINE",
		Short:             "Show how a node came to where it is",
		Long:              "Show the changes of a node's state, newest first: who caused each, and why.",
		Example:           "  ingot node history m-1\n  ingot node history m-1 --limit 10 --offset 10",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine, r.NodeId = args[0], args[0]
			svc := a.app.Services()
			h, err := svc.Nodes.GetNodeHistory(cmd.Context(), r)
			if err != nil {
				return err
			}
			names := make([]string, len(h.GetData()))
			for i, l := range h.GetData() {
				names[i] = l.GetId()
			}
			return a.app.Print(h, func() string { return a.app.Style().NodeHistory(h).String() }, names...)
		},
	}
	cmd.Flags().Int32Var(&r.Limit, "limit", 0, "at most so many (default 50)")
	cmd.Flags().Int32Var(&r.Offset, "offset", 0, "leave out so many of the newest")
	return cmd
}
