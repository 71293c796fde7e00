package work

import (
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

type timelineFlags struct {
	limit       int
	at, since   string
	oldestFirst bool
}

func (a commands) timelineCmd() *cobra.Command {
	var f timelineFlags
	cmd := &cobra.Command{
		Use:   "timeline MACHINE",
		Short: "Show the history of a machine, and what it was at a time",
		Long: `Show the ordered history of a machine, newest first: every change of its phase, conditions,
node state, operations, steps and commands, who caused it, and on what evidence.

With --at, first comes the machine as it was then, rebuilt from its history, and then the history up
to that time.

Histories are chained by hashes: "ingot audit verify" finds any that was changed.`,
		Example: `  ingot timeline m-1
  ingot timeline m-1 --at 2026-03-01T12:00:00Z
  ingot timeline m-1 --since 2h --oldest-first --limit 0 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.app.Subject.Machine = args[0]
			return a.timeline(cmd, args[0], f)
		},
	}
	cmd.Flags().IntVar(&f.limit, "limit", 100, "at most so many entries; 0 is all")
	cmd.Flags().StringVar(&f.at, "at", "", "the machine as it was at this time, RFC 3339, or so long ago, such as 2h")
	cmd.Flags().StringVar(&f.since, "since", "", "only entries since this time, RFC 3339, or since so long ago")
	cmd.Flags().BoolVar(&f.oldestFirst, "oldest-first", false, "in the order in which it happened")
	return cmd
}

func (a commands) timeline(cmd *cobra.Command, machine string, f timelineFlags) error {
	at, err := a.app.Moment("--at", f.at)
	if err != nil {
		return err
	}
	since, err := a.app.Moment("--since", f.since)
	if err != nil {
		return err
	}
	svc := a.app.Services()
	all := &pb.GetMachineTimelineResponse{}
	all.Entries, err = command.Pages(f.limit, func(size int32, token string) ([]*pb.TimelineEntry, string, error) {
		r, err := svc.Machines.GetMachineTimeline(cmd.Context(), &pb.GetMachineTimelineRequest{
			MachineId: machine, PageSize: size, PageToken: token, At: at, Since: since, OldestFirst: f.oldestFirst,
		})
		if token == "" {
			all.State = r.GetState()
		}
		return r.GetEntries(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return a.app.Print(all, func() string {
		entries := command.Table(a.app, view.Style.Timeline, all.GetEntries()...)
		if at == nil {
			return entries
		}
		return a.app.Style().StateThen(machine, at, all.GetState()) + "\n" + entries
	})
}
