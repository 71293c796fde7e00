package cli

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) timelineCmd() *cobra.Command {
	var limit int
	var at string
	cmd := &cobra.Command{
		Use:               "timeline MACHINE",
		Short:             "Show the history of a machine",
		Long:              `Show the ordered history of a machine: who did what, and what happened.`,
		Example:           "  ingot timeline m-1\n  ingot timeline m-1 --at 2026-03-01T12:00:00Z",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.subject.machine = args[0]
			return a.timeline(cmd, args[0], at, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many entries; 0 is all")
	cmd.Flags().StringVar(&at, "at", "", "the machine as it was at this time, RFC 3339")
	return cmd
}

func (a *app) timeline(cmd *cobra.Command, machine, at string, limit int) error {
	var when *timestamppb.Timestamp
	if at != "" {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return usagef("--at %q: want RFC 3339, such as 2026-03-01T12:00:00Z", at)
		}
		when = timestamppb.New(t)
	}
	svc, err := a.services()
	if err != nil {
		return err
	}
	entries, err := pages(limit, func(size int32, token string) ([]*pb.TimelineEntry, string, error) {
		r, err := svc.machines.GetMachineTimeline(cmd.Context(), &pb.GetMachineTimelineRequest{
			MachineId: machine, PageSize: size, PageToken: token, At: when,
		})
		return r.GetEntries(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	return a.print(&pb.GetMachineTimelineResponse{Entries: entries}, func() string { return a.style().Timeline(entries).String() })
}
