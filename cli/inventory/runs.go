package inventory

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) runListCmd() *cobra.Command {
	var f command.FilterFlags
	l := command.ListOf(a.app.Services().Runs.ListRuns, (*pb.Run).GetRunId, view.Style.Runs)
	l.Prepare = func([]string) error {
		l.Limit, l.Request.Filter = f.Limit, f.String()
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Short:   "List runs, newest first",
		Long:    `List runs, newest first.`,
		Example: "  ingot run list --machine m-1",
	}, "", "")
	f.Register(a.app, cmd, 100)
	return cmd
}

func (a commands) runCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "cancel RUN",
		Short:             "Ask a run to stop",
		Long:              `Ask a run to stop at its next safe point. What has been done stays done.`,
		Example:           "  ingot run cancel op-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE:              command.Show(a.app, a.app.Services().Runs.CancelRun, (*pb.Run).GetRunId, view.Style.Run),
	}
}

func (a commands) runWatchCmd() *cobra.Command {
	var beginning bool
	cmd := &cobra.Command{
		Use:   "watch [MACHINE | RUN]",
		Short: "Stream the events of runs",
		Long: `Stream the events of all runs, of one machine's, or of one run (op-…), until interrupted,
or until that one run has ended.`,
		Example:           "  ingot run watch m-1",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.watchRuns(cmd.Context(), strings.Join(args, ""), beginning)
		},
	}
	cmd.Flags().BoolVar(&beginning, "from-beginning", false, "replay all stored events first")
	return cmd
}

// errRunOver ends the watch of one run.
var errRunOver = errors.New("the run is over")

func (a commands) watchRuns(ctx context.Context, subject string, beginning bool) error {
	filter := command.JoinFilter("machine_id", subject)
	one := strings.HasPrefix(subject, "op-")
	svc := a.app.Services()
	if one {
		_, err := svc.Runs.GetRun(ctx, &pb.GetRunRequest{RunId: subject})
		if one = !command.NotOperation(err, subject); one && err != nil {
			return err
		}
	}
	if one {
		filter = command.JoinFilter("run_id", subject)
	}
	if _, err := svc.Runs.ListRuns(ctx, &pb.ListRunsRequest{Filter: filter, PageSize: 1}); err != nil {
		return err
	}
	var last *pb.Run
	err := follow.Watch(ctx, follow.WatchConfig[*pb.RunEvent]{
		Source: follow.RunEvents(svc.Runs, filter, beginning),
		Clock:  a.app.Config.Clock,
		Lost:   func() { a.app.Note("! connection lost, retrying…") },
	}, func(ev *pb.RunEvent) error {
		if err := a.app.Stream(
			ev,
			func() string { return a.app.Style().RunLine(ev) },
			ev.GetSnapshot().GetRunId(),
		); err != nil {
			return err
		}
		if one && view.RunFinished(ev.GetSnapshot()) {
			last = ev.GetSnapshot()
			return errRunOver
		}
		return nil
	})
	if last != nil {
		return command.ExitByPhase(pb.Operation_Phase(last.GetPhase()))
	}
	return err
}

func (a commands) runLogsCmd() *cobra.Command {
	var noFollow, raw bool
	cmd := &cobra.Command{
		Use:               "logs RUN",
		Short:             "Print a run's log and follow it",
		Long:              `Print the log of a run and follow it until the run ends.`,
		Example:           "  ingot run logs op-01k",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Operation = args[0]
			svc := a.app.Services()
			return a.app.PrintLog(cmd.Context(), raw, follow.LogConfig{
				Open: follow.RunLog(svc.Runs, args[0], noFollow),
				Complete: func(ctx context.Context) (bool, error) {
					run, err := svc.Runs.GetRun(ctx, &pb.GetRunRequest{RunId: args[0]})
					return noFollow || view.RunFinished(run), err
				},
			})
		},
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "stop after what is stored")
	cmd.Flags().BoolVar(&raw, "raw", false, "the bytes as they are")
	return cmd
}
