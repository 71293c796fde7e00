package work

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

// modeNames are the modes of a decommission as they are typed.
var modeNames = []string{"soft-reset", "reimage", "storage-cleanup", "full-decommission"}

// lifeFlags are those of the commands that start a workflow.
type lifeFlags struct {
	work                  command.WorkFlags
	bulk                  command.Bulk
	mode, path, image     string
	maintenance, dry, yes bool
	kind                  pb.Workflow_Kind
}

func (l *lifeFlags) register(a commands, cmd *cobra.Command) {
	l.work.Register(cmd)
	f := cmd.Flags()
	f.StringVar(&l.image, "image", "", "image to write (default: the machine's or the server's)")
	f.BoolVar(&l.maintenance, "enter-maintenance", false,
		"open that operation first where the machine is not in maintenance")
	f.BoolVar(&l.dry, "dry-run", false, "check everything and say what would happen, and do nothing")
	f.BoolVar(&l.yes, "yes", false, "do not ask before data is lost")
	a.app.Must(cmd.RegisterFlagCompletionFunc("image", a.app.CompleteImages("kind=os")))
}

func (a commands) onboardCmd() *cobra.Command {
	l := lifeFlags{kind: pb.Workflow_ONBOARDING}
	cmd := &cobra.Command{
		Use:   "onboard MACHINE…",
		Short: "Bring machines into the fleet: install, enrol, verify",
		Long: `Bring new machines into the fleet. --path install (default for a machine that was
discovered or registered) writes an image and waits for the system that it makes; --path adopt
(default for one that was given a token) takes the system that is there.` + command.TargetsHelp + command.WaitHelp,
		Example: `  ingot onboard m-1 --image ubuntu-2204 --enter-maintenance
  ingot onboard m-1 --path adopt
  ingot onboard 'r42-[01-16]' --max-in-flight 2 --request-id rack-42 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runLife(cmd, args, &l) },
	}
	l.register(a, cmd)
	l.bulk.Register(a.app, cmd)
	cmd.Flags().StringVar(&l.path, "path", "", "install or adopt (default: by the node's state)")
	command.Fixed(cmd, "path", "install", "adopt")
	return cmd
}

func (a commands) decommissionCmd() *cobra.Command {
	l := lifeFlags{kind: pb.Workflow_DECOMMISSION}
	cmd := &cobra.Command{
		Use:   "decommission MACHINE… --mode MODE",
		Short: "Reset, reimage, wipe or remove machines",
		Long: `Take machines out of use, and back or away:

  soft-reset         reboot it; its disks stay as they are; ends active
  reimage            write its image anew; ends active
  storage-cleanup    erase every disk that is not protected, and write its image anew; ends active
  full-decommission  erase every disk, switch it off, revoke what it was given, remove its record; ends deleted

A deleted record never comes back; the same hardware can be registered as a new one.` +
			command.TargetsHelp + command.WaitHelp,
		Example: `  ingot decommission m-1 --mode soft-reset --enter-maintenance
  ingot decommission m-1 --mode full-decommission --dry-run
  ingot decommission 'r42-[01-10]' --mode full-decommission --enter-maintenance --max-in-flight 2`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runLife(cmd, args, &l) },
	}
	l.register(a, cmd)
	l.bulk.Register(a.app, cmd)
	cmd.Flags().StringVar(&l.mode, "mode", "", "soft-reset, reimage, storage-cleanup or full-decommission")
	a.app.Must(cmd.MarkFlagRequired("mode"))
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
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
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
	a.app.Must(cmd.MarkFlagRequired("kind"))
	command.Fixed(cmd, "kind", "onboarding", "decommission")
	command.Fixed(cmd, "mode", modeNames...)
	command.Fixed(cmd, "path", "install", "adopt")
	return cmd
}

// params are those of the flags that were given.
func (l *lifeFlags) params() (map[string]string, error) {
	seconds, err := l.work.StepSeconds()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for key, value := range map[string]string{"image_ref": l.image, "path": l.path} {
		if value != "" {
			out[key] = value
		}
	}
	if seconds > 0 {
		out["timeout_seconds"] = fmt.Sprint(seconds)
	}
	return out, nil
}

func (l *lifeFlags) modeValue() (pb.Workflow_Mode, error) {
	mode := pb.Workflow_Mode(pb.Workflow_Mode_value[command.EnumName(l.mode)])
	if l.mode != "" && mode == 0 {
		return 0, command.Invalidf("there is no mode %q; there are %s", l.mode, strings.Join(modeNames, ", "))
	}
	return mode, nil
}

// begunNothing reports whether the command only asks.
func (l *lifeFlags) begunNothing() bool { return l.dry || l.bulk.ValidateOnly }

// losesData reports whether the machine's disks are written.
func (l *lifeFlags) losesData() bool {
	return !l.begunNothing() && l.path != "adopt" && command.EnumName(l.mode) != "SOFT_RESET"
}

// runLife starts a workflow on the one machine that is named, or a rollout of it over several.
func (a commands) runLife(cmd *cobra.Command, args []string, l *lifeFlags) error {
	params, err := l.params()
	if err != nil {
		return err
	}
	mode, err := l.modeValue()
	if err != nil {
		return err
	}
	machine, single := l.bulk.Targets.Single(args)
	if !single {
		action := pb.RolloutSpec_ONBOARD
		if l.kind == pb.Workflow_DECOMMISSION {
			action = pb.RolloutSpec_DECOMMISSION
		}
		l.bulk.Yes, l.bulk.Dry = l.yes, l.dry
		return a.app.Roll(cmd, &l.bulk, &l.work, args, &pb.RolloutSpec{
			Action: action, Mode: mode, EnterMaintenance: l.maintenance, Params: params,
		})
	}
	if l.losesData() {
		if err := a.app.Confirm(l.yes, "The data on the disks of "+machine+" is lost.", machine); err != nil {
			return err
		}
	}
	r := &pb.StartWorkflowRequest{
		MachineId: machine, Kind: l.kind, Mode: mode, EnterMaintenance: l.maintenance, DryRun: l.dry, Params: params,
		ValidateOnly: l.bulk.ValidateOnly,
	}
	if l.begunNothing() {
		return a.foretell(cmd, args, l, r)
	}
	return a.app.Work(
		cmd,
		machine,
		&l.work,
		func(ctx context.Context, svc *command.Services, id string, _ int32) (*pb.Operation, error) {
			r.RequestId = id
			return svc.Workflows.StartWorkflow(ctx, r)
		},
	)
}

func (a commands) foretell(cmd *cobra.Command, args []string, l *lifeFlags, r *pb.StartWorkflowRequest) error {
	a.app.Subject.Machine = r.GetMachineId()
	svc := a.app.Services()
	r.RequestId = a.app.Request(&l.work)
	op, err := svc.Workflows.StartWorkflow(cmd.Context(), r)
	if err != nil {
		return err
	}
	return a.app.Print(op, func() string { return view.Foretold(op, command.Line(cmd, args)) }, op.GetMachineId())
}
