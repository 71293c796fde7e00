package machines

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) countCmd() *cobra.Command {
	var filter string
	var by []string
	var asOf command.AsOf
	cmd := &cobra.Command{
		Use:   "count",
		Short: "Count machines, by the values of up to three keys",
		Long: `Count machines at one moment: those that match a filter, and with --by how many have each value.
--by takes the keys of the filter; image is what is on the disk. More than 1,000 groups are refused.` + filterHelp,
		Example: `  ingot count
  ingot count --by state
  ingot count --by state --as-of 03:12
  ingot count --filter site=berlin --by rack,state
  ingot count --by labels.env,image -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := asOf.Read(a.app)
			if err != nil {
				return err
			}
			svc := a.app.Services()
			r, err := svc.Machines.CountMachines(cmd.Context(), &pb.CountMachinesRequest{Filter: filter, GroupBy: by, AsOf: at})
			if err != nil {
				return err
			}
			var names []string
			for _, g := range r.GetGroups() {
				names = append(names, strings.Join(g.GetValues(), "\t"))
			}
			return a.app.Print(r, func() string { return a.app.Style().MachineCounts(by, r) }, names...)
		},
	}
	cmd.Flags().StringVar(&filter, "filter", "", "terms such as phase=READY,labels.env=prod")
	asOf.Register(cmd)
	cmd.Flags().StringSliceVar(&by, "by", nil, "keys, such as site,state")
	command.Fixed(cmd, "by", "state", "phase", "node_state", "site", "rack", "region", "group", "provider", "cluster",
		"image")
	return cmd
}
