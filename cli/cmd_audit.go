package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) auditCmd() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:               "audit [TARGET]",
		Short:             "Show who did what",
		Long:              `Show the audit log, of everything or of one target such as a machine, newest first. -o wide adds the data.`,
		Example:           "  ingot audit m-1\n  ingot audit --limit 500 -o json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			entries, err := pages(limit, func(size int32, page string) ([]*pb.AuditEntry, string, error) {
				r, err := svc.admin.ListAuditLog(cmd.Context(), &pb.ListAuditLogRequest{
					TargetId: strings.Join(args, ""), PageSize: size, PageToken: page,
				})
				return r.GetEntries(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(entries))
			for i, e := range entries {
				names[i] = strconv.FormatInt(e.GetAuditId(), 10)
			}
			return a.print(&pb.ListAuditLogResponse{Entries: entries}, func() string {
				return a.style().Audit(entries, a.wide()).String()
			}, names...)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many; 0 is all")
	cmd.AddCommand(a.auditScrubCmd(), a.auditVerifyCmd())
	return cmd
}

func (a *app) auditScrubCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "scrub TARGET",
		Short: "Empty the personal data of a target's audit rows",
		Long: `Empty the data of a target's audit rows for good: comments, names, whatever people typed. Who did what and when
stays.`,
		Example:           "  ingot audit scrub m-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			r, err := svc.admin.ScrubAuditEventData(cmd.Context(), &pb.ScrubAuditEventDataRequest{TargetId: args[0]})
			if err != nil {
				return err
			}
			return a.print(r, func() string { return fmt.Sprintf("Scrubbed %d rows\n", r.GetScrubbedRows()) }, args[0])
		},
	}
}

func (a *app) serverCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "About the controller",
		Long:    `About the controller that answers.`,
		Example: "  ingot server info",
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "info",
		Short:   "Show which controller answers and what it cannot do yet",
		Long:    `Show the version, the id, the CA hash and the clock of the controller that answers, and what it cannot do yet.`,
		Example: "  ingot server info -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			i, err := svc.admin.GetServerInfo(cmd.Context(), &pb.GetServerInfoRequest{})
			if err != nil {
				return err
			}
			return a.print(i, func() string { return a.style().Server(i) }, i.GetControllerId())
		},
	}, a.freezeCmd(), a.thawCmd())
	return cmd
}

func (a *app) thawCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "Lift the freeze of the fleet",
		Long: `Lift the freeze that "ingot server freeze" or "ingot-controller after-restore" puts on the fleet. Until then nothing is
started on a machine; after a restore, what the backup forgot must not be done again. Look first: ingot server info says how many agents have not been heard
since, and ingot agent list which.`,
		Example: `  ingot server thaw --comment "compared with the change log of Tuesday"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			i, err := svc.admin.ThawFleet(cmd.Context(), &pb.ThawFleetRequest{Comment: comment})
			if err != nil {
				return err
			}
			return a.print(i, func() string { return "The fleet is thawed\n" }, i.GetControllerId())
		},
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}
