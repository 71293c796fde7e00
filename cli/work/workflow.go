package work

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) workflowCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workflow",
		Aliases: []string{"workflows"},
		Short:   "See and steer onboardings and decommissions",
		Long: `A workflow brings a machine into the fleet or takes it out, in stages. Each attempt is an
operation. When one fails, ingot workflow get says why and what may be done, and ingot workflow act
does it.`,
		Example: "  ingot workflow list --open\n  ingot workflow get wf-01k\n  ingot workflow act wf-01k resume",
	}
	cmd.AddCommand(a.workflowStartCmd(), a.workflowListCmd(), a.workflowGetCmd(), a.workflowActCmd())
	return cmd
}

func (a commands) workflowListCmd() *cobra.Command {
	var machine, state, mode, filter string
	var open bool
	l := command.ListOf(a.app.Services().Workflows.ListWorkflows, (*pb.Workflow).GetWorkflowId, view.Style.Workflows)
	l.Prepare = func([]string) error {
		only := ""
		if open {
			only = "true"
		}
		l.Request.Filter = command.JoinFilter("machine_id", machine, "state", command.EnumName(state), "mode",
			command.EnumName(mode), "open", only, "", filter)
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Short:   "List workflows, newest first",
		Long:    "List workflows, newest first. -o wide adds why they failed and what to do next.",
		Example: "  ingot workflow list --machine m-1\n  ingot workflow list --state failed_retryable -o wide",
	}, "", "")
	f := cmd.Flags()
	f.StringVar(&machine, "machine", "", "only this machine")
	f.StringVar(&state, "state", "", "only this state, such as failed_retryable")
	f.StringVar(&mode, "mode", "", "only this mode, such as full-decommission")
	f.BoolVar(&open, "open", false, "only those that have not ended")
	f.StringVar(&filter, "filter", "", "further terms, such as failure_class=pxe_not_fixable")
	f.IntVar(&l.Limit, "limit", 100, "at most so many, newest first; 0 is all")
	a.app.Must(cmd.RegisterFlagCompletionFunc("machine", a.app.CompleteMachines()))
	command.Fixed(cmd, "mode", modeNames...)
	return cmd
}

func (a commands) workflowGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get WORKFLOW",
		Short: "Show one workflow, why it stands and what may be done",
		Long: "Show one workflow: its stages, the one that it is at, why its last attempt failed, and the " +
			"actions that are legal now.",
		Example:           "  ingot workflow get wf-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteWorkflows()),
		RunE: command.Show(
			a.app,
			a.app.Services().Workflows.GetWorkflow,
			(*pb.Workflow).GetWorkflowId,
			view.Style.Workflow,
		),
	}
}

// actionNames are the actions as they are typed.
var actionNames = []string{"retry-stage", "resume", "rerun", "restart-clean", "cancel", "adopt-observed-state",
	"mark-manual-intervention-required"}

func (a commands) workflowActCmd() *cobra.Command {
	var w command.WorkFlags
	var comment string
	var dry, yes bool
	cmd := &cobra.Command{
		Use:   "act WORKFLOW ACTION",
		Short: "Retry, resume, restart, cancel or adopt",
		Long: `Take one action on a workflow. Which are legal depends on its state; ingot workflow get lists them.

  retry-stage           try the stage that failed again
  resume                go on from the last safe stage, or wake an attempt that nobody looks at
  rerun                 begin at the top, leaving out what is proven
  restart-clean         drop all evidence, put the node back and begin again
  cancel                stop, and undo what can be undone
  adopt-observed-state  take the failed stage as done because it is observed to be
  mark-manual-intervention-required
                        freeze it until somebody resolves it

Each is safe to repeat: what is under way is not started twice. --dry-run says what would happen.` + command.WaitHelp,
		Example: `  ingot workflow act wf-01k resume
  ingot workflow act wf-01k restart-clean --dry-run
  ingot workflow act wf-01k cancel --comment "wrong rack"`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteWorkflows(), command.Among(actionNames...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			action := pb.WorkflowAction(pb.WorkflowAction_value["WORKFLOW_ACTION_"+command.EnumName(args[1])])
			if action == 0 {
				return command.Invalidf("there is no action %q; there are %s", args[1], strings.Join(actionNames, ", "))
			}
			if action == pb.WorkflowAction_WORKFLOW_ACTION_RESTART_CLEAN && !dry {
				if err := a.app.Confirm(
					yes,
					"Everything that the workflow has done is done again, erasing and installing included.",
					args[0],
				); err != nil {
					return err
				}
			}
			svc := a.app.Services()
			op, err := svc.Workflows.ActOnWorkflow(cmd.Context(), &pb.ActOnWorkflowRequest{
				WorkflowId: args[0], RequestId: a.app.Request(&w), Action: action, Comment: comment, DryRun: dry,
			})
			if err != nil {
				return err
			}
			if dry {
				return a.app.Print(op, func() string { return view.Foretold(op, command.Line(cmd, args)) }, op.GetMachineId())
			}
			return a.showStarted(cmd, svc, op, &w)
		},
	}
	w.Register(cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would happen, and do nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// showStarted shows an operation as the flags want it.
func (a commands) showStarted(cmd *cobra.Command, svc *command.Services, op *pb.Operation, w *command.WorkFlags) error {
	a.app.Subject.Operation = op.GetOperationId()
	if !w.Waits() || op.GetOperationId() == "" {
		return a.app.Print(op, func() string { return a.app.Style().OperationLine(op) }, op.GetOperationId())
	}
	return a.app.Show(cmd.Context(), svc, op, nil)
}
