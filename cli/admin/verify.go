package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) auditVerifyCmd() *cobra.Command {
	var list bool
	var heads string
	cmd := &cobra.Command{
		Use:   "verify [MACHINE…]",
		Short: "Prove that histories and the audit log are as they were written",
		Long: `Recompute the hash of every entry of the histories of all machines, or of the ones that are
named, and compare what they say with the tables and the audit log. A byte that was changed, a row
that is gone and a row that was slipped in are found and named. Data of audit rows that were
scrubbed is no fault.

--heads compares the histories with what "ingot audit heads" printed earlier: so that also an end that was cut off,
and a machine that is gone, are found. What a restore of the database lost is no fault, and is noted.

Exit code 5 means that something was found.`,
		Example:           "  ingot audit verify\n  ingot audit verify m-1 m-2\n  ingot audit verify --heads heads.json",
		ValidArgsFunction: a.app.CompleteMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var kept []*pb.HistoryHead
			if heads != "" {
				var err error
				if kept, err = readHeads(heads, args); err != nil {
					return err
				}
			}
			all, err := a.verify(cmd.Context(), args, kept)
			if err != nil {
				return err
			}
			bad := faulty(all.GetVerdicts())
			shown := bad
			if list || len(args) > 0 {
				shown = all.GetVerdicts()
			}
			if err := a.app.Print(
				all,
				func() string { return a.app.Style().Verdicts(all.GetVerdicts(), shown, len(bad)) },
			); err != nil {
				return err
			}
			if len(bad) > 0 {
				return brokenHistories(len(bad), len(all.GetVerdicts()))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list every history, not only the ones at fault")
	cmd.Flags().StringVar(&heads, "heads", "", "compare with this file of \"ingot audit heads\"")
	return cmd
}

func faulty(all []*pb.TimelineVerdict) []*pb.TimelineVerdict {
	var out []*pb.TimelineVerdict
	for _, v := range all {
		if !v.GetOk() {
			out = append(out, v)
		}
	}
	return out
}

// verify asks for page after page, or for one machine after the other, and shows how far it is. Then it compares the
// heads that were kept.
func (a commands) verify(
	ctx context.Context, machines []string, kept []*pb.HistoryHead,
) (*pb.VerifyTimelineResponse, error) {
	svc := a.app.Services()
	all := &pb.VerifyTimelineResponse{}
	take := func(r *pb.VerifyTimelineRequest, total int64) (next string, err error) {
		resp, err := svc.Machines.VerifyTimeline(ctx, r)
		if err != nil {
			return "", err
		}
		all.Verdicts = append(all.Verdicts, resp.GetVerdicts()...)
		all.Total = max(total, resp.GetTotal())
		a.verified(int64(len(all.GetVerdicts())), all.GetTotal())
		return resp.GetNextPageToken(), nil
	}
	for _, m := range machines {
		a.app.Subject.Machine = m
		_, err := take(&pb.VerifyTimelineRequest{MachineId: m}, int64(len(machines)))
		gone := status.Code(err) == codes.NotFound && slices.ContainsFunc(kept, func(h *pb.HistoryHead) bool {
			return h.GetMachineId() == m
		})
		if err != nil && !gone { // a machine that is gone is found by its head
			return nil, err
		}
	}
	for token, more := "", len(machines) == 0; more; more = token != "" {
		var err error
		if token, err = take(&pb.VerifyTimelineRequest{PageToken: token}, 0); err != nil {
			return nil, err
		}
	}
	if a.app.Config.ErrTerminal {
		a.app.Note("")
	}
	if len(kept) > 0 {
		return all, a.compareHeads(ctx, kept, all)
	}
	return all, nil
}

// verified draws the bar, for a person only. A lost bar is not worth failing for.
func (a commands) verified(done, total int64) {
	if a.app.Config.ErrTerminal && total > 0 {
		_, _ = fmt.Fprintf(a.app.Config.Err, "\r%s %d of %d histories", view.Bar(int(100*done/total), 30), done, total)
	}
}
