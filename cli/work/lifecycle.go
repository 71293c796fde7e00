package work

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/task"
)

// modeNames are the modes of a decommission as they are typed.
var modeNames = []string{"soft-reset", "reimage", "storage-cleanup", "full-decommission"}

// lifeFlags are those of the commands that start a workflow.
type lifeFlags struct {
	work                   command.WorkFlags
	mode, path, image      string
	maintenance, dry, yes  bool
	parallelism            int
	kind                   pb.Workflow_Kind
	severalMachinesAllowed bool
}

func (l *lifeFlags) register(a commands, cmd *cobra.Command) {
	l.work.Register(cmd)
	f := cmd.Flags()
	f.StringVar(&l.image, "image", "", "image to write (default: the machine's or the server's)")
	f.BoolVar(&l.maintenance, "enter-maintenance", false,
		"open that operation first where the machine is not in maintenance")
	f.BoolVar(&l.dry, "dry-run", false, "check everything and say what would happen, and do nothing")
	f.BoolVar(&l.yes, "yes", false, "do not ask before data is lost")
	a.Must(cmd.RegisterFlagCompletionFunc("image", a.CompleteImages("kind=os")))
}

func (a commands) onboardCmd() *cobra.Command {
	l := lifeFlags{kind: pb.Workflow_ONBOARDING, severalMachinesAllowed: true}
	cmd := &cobra.Command{
		Use:   "onboard MACHINE...",
		Short: "Bring machines into the fleet: install, enrol, verify",
		Long: `Bring new machines into the fleet. --path install (default for a machine that was
discovered or registered) writes an image and waits for the system that it makes; --path adopt
(default for one that was given a token) takes the system that is there.

Several machines are onboarded side by side, at most --parallelism at a time. With the same
--request-id the command goes on where it was interrupted: a machine's own id is made of it and the
machine's name.` + command.WaitHelp,
		Example: `  ingot onboard m-1 --image ubuntu-2204 --enter-maintenance
  ingot onboard m-1 --path adopt
  ingot onboard m-1 m-2 m-3 --parallelism 2 --request-id rack-42 --yes`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.CompleteMachines(),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runLife(cmd, args, &l) },
	}
	l.register(a, cmd)
	cmd.Flags().StringVar(&l.path, "path", "", "install or adopt (default: by the node's state)")
	cmd.Flags().IntVar(&l.parallelism, "parallelism", 4, "how many machines at a time")
	command.Fixed(cmd, "path", "install", "adopt")
	return cmd
}

func (a commands) decommissionCmd() *cobra.Command {
	l := lifeFlags{kind: pb.Workflow_DECOMMISSION}
	cmd := &cobra.Command{
		Use:   "decommission MACHINE --mode MODE",
		Short: "Reset, reimage, wipe or remove a machine",
		Long: `Take a machine out of use, and back or away:

  soft-reset         reboot it; its disks stay as they are; ends active
  reimage            write its image anew; ends active
  storage-cleanup    erase every disk that is not protected, and write its image anew; ends active
  full-decommission  erase every disk, switch it off, revoke what it was given, remove its record; ends deleted

A deleted record never comes back; the same hardware can be registered as a new one.` + command.WaitHelp,
		Example: `  ingot decommission m-1 --mode soft-reset --enter-maintenance
  ingot decommission m-1 --mode full-decommission --dry-run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runLife(cmd, args, &l) },
	}
	l.register(a, cmd)
	cmd.Flags().StringVar(&l.mode, "mode", "", "soft-reset, reimage, storage-cleanup or full-decommission")
	a.Must(cmd.MarkFlagRequired("mode"))
	command.Fixed(cmd, "mode", modeNames...)
	return cmd
}

func (a commands) workflowStartCmd() *cobra.Command {
	var l lifeFlags
	var kind string
	cmd := &cobra.Command{
		Use:   "start MACHINE --kind KIND",
		Short: "Start a workflow; onboard and decommission are shorter",
		Long: "Start an onboarding or a decommission; see ingot onboard and ingot decommission for what\n" +
			"they do." + command.WaitHelp,
		Example:           "  ingot workflow start m-1 --kind decommission --mode reimage --image ubuntu-2204",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.kind = pb.Workflow_Kind(pb.Workflow_Kind_value[command.EnumName(kind)]); l.kind == 0 {
				return command.Invalidf("there is no kind %q; there are onboarding and decommission", kind)
			}
			return a.runLife(cmd, args, &l)
		},
	}
	l.register(a, cmd)
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", "onboarding or decommission")
	f.StringVar(&l.mode, "mode", "", "of a decommission: soft-reset, reimage, storage-cleanup or full-decommission")
	f.StringVar(&l.path, "path", "", "of an onboarding: install or adopt")
	a.Must(cmd.MarkFlagRequired("kind"))
	command.Fixed(cmd, "kind", "onboarding", "decommission")
	command.Fixed(cmd, "mode", modeNames...)
	command.Fixed(cmd, "path", "install", "adopt")
	return cmd
}

// request makes what is sent for one machine.
func (l *lifeFlags) request(machine, requestID string, seconds int32) (*pb.StartWorkflowRequest, error) {
	r := &pb.StartWorkflowRequest{
		MachineId: machine, RequestId: requestID, Kind: l.kind, EnterMaintenance: l.maintenance, DryRun: l.dry,
		Mode: pb.Workflow_Mode(pb.Workflow_Mode_value[command.EnumName(l.mode)]),
	}
	if l.mode != "" && r.GetMode() == 0 {
		return nil, command.Invalidf("there is no mode %q; there are %s", l.mode, strings.Join(modeNames, ", "))
	}
	for key, value := range map[string]string{"image_ref": l.image, "path": l.path} {
		if value != "" {
			r.Params = with(r.GetParams(), key, value)
		}
	}
	if seconds > 0 {
		r.Params = with(r.GetParams(), "timeout_seconds", fmt.Sprint(seconds))
	}
	return r, nil
}

// losesData says that the machine's disks are written.
func (l *lifeFlags) losesData() bool {
	return !l.dry && l.path != "adopt" && command.EnumName(l.mode) != "SOFT_RESET"
}

func (a commands) runLife(cmd *cobra.Command, machines []string, l *lifeFlags) error {
	if l.losesData() {
		if err := a.Confirm(l.yes, "The data on the disks of "+strings.Join(machines, ", ")+" is lost.",
			machines[0]); err != nil {
			return err
		}
	}
	seconds, err := l.work.StepSeconds()
	if err != nil {
		return err
	}
	if l.severalMachinesAllowed && len(machines) > 1 {
		return a.runLives(cmd, machines, l, seconds)
	}
	r, err := l.request(machines[0], "", seconds)
	if err != nil {
		return err
	}
	if l.dry {
		return a.foretell(cmd, l, r)
	}
	return a.Work(
		cmd,
		machines[0],
		&l.work,
		func(ctx context.Context, svc *command.Services, id string, _ int32) (*pb.Operation,
			error) {
			r.RequestId = id
			return svc.Workflows.StartWorkflow(ctx, r)
		},
	)
}

func (a commands) foretell(cmd *cobra.Command, l *lifeFlags, r *pb.StartWorkflowRequest) error {
	a.Subject.Machine = r.GetMachineId()
	svc, err := a.Services()
	if err != nil {
		return err
	}
	r.RequestId = a.Request(&l.work)
	op, err := svc.Workflows.StartWorkflow(cmd.Context(), r)
	if err != nil {
		return err
	}
	return a.Print(op, func() string { return view.Foretold(op) }, op.GetMachineId())
}

// runLives works on several machines, at most so many at a time, and prints a line for each when it has ended.
func (a commands) runLives(cmd *cobra.Command, machines []string, l *lifeFlags, seconds int32) error {
	if l.parallelism < 1 {
		return command.Usagef("--parallelism must be at least 1")
	}
	svc, err := a.Services()
	if err != nil {
		return err
	}
	batch := a.Request(&l.work)
	ops := make([]*pb.Operation, len(machines))
	errs := make([]error, len(machines))
	g, ctx := task.New(cmd.Context())
	next := make(chan int, len(machines))
	for i := range machines {
		next <- i
	}
	close(next)
	for range min(l.parallelism, len(machines)) {
		g.Go("onboard", func(context.Context) error {
			for i := range next {
				// A machine's own request id: the batch can be given again, and starts nothing twice.
				ops[i], errs[i] = a.oneLife(ctx, svc, l, machines[i], batch+"/"+machines[i], seconds)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return a.printLives(machines, ops, errs)
}

func (a commands) oneLife(
	ctx context.Context, svc *command.Services, l *lifeFlags, machine, requestID string, seconds int32,
) (*pb.Operation, error) {
	r, err := l.request(machine, requestID, seconds)
	if err != nil {
		return nil, err
	}
	op, err := svc.Workflows.StartWorkflow(ctx, r)
	for err == nil && l.work.Waits() && !l.dry && !view.Finished(op) {
		select {
		case <-ctx.Done():
			return op, ctx.Err()
		case <-a.Config.Clock.After(command.PollEvery):
		}
		op, err = svc.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()})
	}
	return op, err
}

// printLives prints a table of the batch; the first failure is the exit code.
func (a commands) printLives(machines []string, ops []*pb.Operation, errs []error) error {
	t := &view.Table{Header: []string{"MACHINE_ID", "OPERATION_ID", "PHASE", "STAGE", "ERROR"}}
	var first error
	out := &pb.ListOperationsResponse{}
	for i, machine := range machines {
		op, phase, problem := ops[i], "", ops[i].GetError().GetCode()
		if op != nil {
			phase = op.GetPhase().String()
		} else {
			op = &pb.Operation{MachineId: machine} // for programs: why there is none
		}
		if errs[i] != nil {
			problem = command.ErrorText(errs[i])
			op.Error = &pb.ErrorStatus{Code: client.Info(errs[i]).GetReason(), Message: status.Convert(errs[i]).Message()}
		}
		t.Add(machine, op.GetOperationId(), phase, op.GetCurrentStage(), view.Clean(problem))
		out.Operations = append(out.Operations, op)
		if first == nil {
			first = errs[i]
		}
		if first == nil && view.Finished(op) {
			first = command.ExitByPhase(op.GetPhase())
		}
	}
	if err := a.Print(out, t.String, machines...); err != nil {
		return err
	}
	return first
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
