package admin

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) auditCmd() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit [TARGET]",
		Short: "Show who did what",
		Long: `Show the audit log, of everything or of one target such as a machine, newest first. -o wide adds the data as it
is stored, with addresses and identities.

--export writes JSON, one entry to a line, page by page: all that the filters let through, whatever there is of it.`,
		Example: `  ingot audit m-1
  ingot audit --actor ci --since 2026-11-01T00:00:00Z
  ingot audit --verb 'delete-*' --since 24h
  ingot audit --export audit.jsonl --until 2026-01-01T00:00:00Z`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			read, err := a.auditPages(cmd, strings.Join(args, ""), f)
			if err != nil {
				return err
			}
			if f.export != "" {
				return a.exportAudit(f.export, read)
			}
			entries, err := command.Pages(f.limit, read)
			if err != nil {
				return err
			}
			names := make([]string, len(entries))
			for i, e := range entries {
				names[i] = strconv.FormatInt(e.GetAuditId(), 10)
			}
			return a.app.Print(&pb.ListAuditLogResponse{Entries: entries}, func() string {
				return command.Table(a.app, view.Style.Audit, entries...)
			}, names...)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.limit, "limit", 100, "at most so many; 0 is all")
	fl.StringVar(&f.actor, "actor", "", "only what this token or agent did")
	fl.StringVar(&f.verb, "verb", "", "only this verb, such as ADD_IMAGE, or those that begin so, such as 'ADD_*'")
	fl.StringVar(&f.since, "since", "", "from this time on (RFC 3339, or a duration such as 24h before now)")
	fl.StringVar(&f.until, "until", "", "before this time (likewise)")
	fl.StringVar(&f.export, "export", "", "write all to this file as JSON lines; - is standard output")
	cmd.AddCommand(a.auditScrubCmd(), a.auditVerifyCmd(), a.auditHeadsCmd())
	return cmd
}

type auditFlags struct {
	limit                             int
	actor, verb, since, until, export string
}

type auditReader = func(size int32, page string) ([]*pb.AuditEntry, string, error)

func (a commands) auditPages(cmd *cobra.Command, target string, f auditFlags) (auditReader, error) {
	r := pb.ListAuditLogRequest{TargetId: target, Actor: f.actor, Verb: command.EnumName(f.verb)}
	var err error
	if r.Since, err = a.app.Moment("--since", f.since); err != nil {
		return nil, err
	}
	if r.Until, err = a.app.Moment("--until", f.until); err != nil {
		return nil, err
	}
	svc := a.app.Services()
	return func(size int32, page string) ([]*pb.AuditEntry, string, error) {
		r.PageSize, r.PageToken = size, page
		resp, err := svc.Admin.ListAuditLog(cmd.Context(), &r)
		return resp.GetEntries(), resp.GetNextPageToken(), err
	}, nil
}

// exportAudit writes page after page and holds one at a time. A file appears under its name when it is whole.
func (a commands) exportAudit(path string, read auditReader) (err error) {
	a.app.Exact = true
	out := a.app.Config.Out
	if path != "-" {
		f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		defer f.Close() //nolint:errcheck // closed with its error below
		out = f
	}
	n := 0
	for page := ""; ; {
		entries, next, err := read(auditPage, page)
		if err != nil {
			return err
		}
		for _, e := range entries {
			line, err := encode.Decoded(e)
			if err != nil {
				return err
			}
			if _, err := out.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("export: %w", err)
			}
		}
		n += len(entries)
		if next == "" || next == page {
			break
		}
		page = next
	}
	if f, ok := out.(*os.File); ok && path != "-" {
		if err := errors.Join(f.Sync(), f.Close(), os.Rename(path+".part", path)); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		return a.app.Write(fmt.Sprintf("Exported %d entries to %s\n", n, path))
	}
	return nil
}

const auditPage = 1000

func (a commands) auditScrubCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "scrub TARGET",
		Short: "Empty the personal data of a target's audit rows",
		Long: `Empty the data of a target's audit rows for good: comments, names, whatever people typed. Who did what and when
stays.`,
		Example:           "  ingot audit scrub m-1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			r, err := svc.Admin.ScrubAuditEventData(cmd.Context(), &pb.ScrubAuditEventDataRequest{TargetId: args[0]})
			if err != nil {
				return err
			}
			return a.app.Print(r, func() string { return fmt.Sprintf("Scrubbed %d rows\n", r.GetScrubbedRows()) }, args[0])
		}),
	}
}
