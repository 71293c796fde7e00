package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) auditVerifyCmd() *cobra.Command {
	var heads bool
	cmd := &cobra.Command{
		Use:   "verify [MACHINE…]",
		Short: "Prove that histories and the audit log are as they were written",
		Long: `Recompute the hash of every entry of the histories of all machines, or of the ones that are
named, and compare what they say with the tables and the audit log. A byte that was changed, a row
that is gone and a row that was slipped in are found and named. Data of audit rows that were
scrubbed is no fault.

Exit code 5 says that something was found. Keep the output of -o json elsewhere: its head hashes
prove later that nothing was cut off at the end.`,
		Example:           "  ingot audit verify\n  ingot audit verify m-1 m-2\n  ingot audit verify -o json >heads.json",
		ValidArgsFunction: a.CompleteMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.verify(cmd.Context(), args)
			if err != nil {
				return err
			}
			bad := faulty(all.GetVerdicts())
			shown := bad
			if heads || len(args) > 0 {
				shown = all.GetVerdicts()
			}
			if err := a.Print(all, func() string { return a.Style().Verdicts(all.GetVerdicts(), shown, len(bad)) }); err != nil {
				return err
			}
			if len(bad) > 0 {
				return &command.ExitError{
					Code: command.ExitFailed,
					Err: fmt.Errorf("%d of %d histories are not as they were written", len(bad),
						len(all.GetVerdicts())),
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&heads, "heads", false, "list every history, not only the ones at fault")
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

// verify asks for page after page, or for one machine after the other, and shows how far it is.
func (a commands) verify(ctx context.Context, machines []string) (*pb.VerifyTimelineResponse, error) {
	svc, err := a.Services()
	if err != nil {
		return nil, err
	}
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
		a.Subject.Machine = m
		if _, err := take(&pb.VerifyTimelineRequest{MachineId: m}, int64(len(machines))); err != nil {
			return nil, err
		}
	}
	for token, more := "", len(machines) == 0; more; more = token != "" {
		if token, err = take(&pb.VerifyTimelineRequest{PageToken: token}, 0); err != nil {
			return nil, err
		}
	}
	if a.Config.ErrTerminal {
		a.Note("")
	}
	return all, nil
}

// verified draws the bar, for a person only. A lost bar is not worth failing for.
func (a commands) verified(done, total int64) {
	if a.Config.ErrTerminal && total > 0 {
		_, _ = fmt.Fprintf(a.Config.Err, "\r%s %d of %d histories", view.Bar(int(100*done/total), 30), done, total)
	}
}
