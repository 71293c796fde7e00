package machines

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

// mostFound is the API's own bound.
const mostFound = 100

func (a commands) findCmd() *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:   "find TEXT",
		Short: "Find machines by a piece of whatever is known of them",
		Long: `Find machines by a piece of a name, a serial number, a MAC address in any notation, an IP address, a BMC,
a label, an asset tag, a UUID or a disk's serial number, in any case. Machines that are called exactly so
come first. A host name of which nothing is found counts up to its first dot. The exit code is 3 where
nothing is found.`,
		Example: `  ingot find web-12.example.org
  ingot find 5254.00aa.0012
  ingot find 10.20.0.17
  ingot find S3Z8NB0K500123 -o name`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > mostFound {
				return command.Usagef("--limit is 1 to %d", mostFound)
			}
			svc := a.app.Services()
			r, err := svc.Machines.SearchMachines(cmd.Context(), &pb.SearchMachinesRequest{Text: args[0], Limit: limit})
			if err != nil {
				return err
			}
			if len(r.GetHits()) == 0 {
				return &command.ExitError{Code: command.ExitNotFound,
					Err: fmt.Errorf("no machine has %q in its name, numbers, addresses or labels", args[0])}
			}
			names := make([]string, 0, len(r.GetHits()))
			for _, h := range r.GetHits() {
				names = append(names, h.GetMachineId())
			}
			if err := a.app.Print(r, func() string { return view.Hits(r.GetHits()) }, names...); err != nil {
				return err
			}
			if r.GetMore() {
				a.app.Note("There are more: type more of it, or raise --limit.")
			}
			return nil
		},
	}
	cmd.Flags().Int32Var(&limit, "limit", 20, "at most so many machines, up to 100")
	return cmd
}
