package machines

import (
	"slices"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

// filterHelp is what the filters of machines have in common.
const filterHelp = `

Filter terms, all of which must hold, are joined by commas: key=value, key!=value, key in (a, b),
key not in (a, b). Keys: phase, state, node_state, provider, site, region, rack, group, location,
serial, cluster, machine_id, image, labels.KEY, conditions.TYPE (true, false, unknown) and
attention_reason (NOT_OBSERVED). A value may end in *; quotes keep a
comma.`

// listFlags are those of `ingot list`.
type listFlags struct {
	filter, order string
	view          string
	columns       []string
	limit         int
	watch         bool
	asOf          command.AsOf
}

func (a commands) listCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List machines with phase, effective state and conditions",
		Long: `List machines. PHASE is what the operator intends, EFFECTIVE is what the machine is doing
right now. -o wide adds node state, provider, site, conditions and labels.

With --watch every change follows, a line each, until you interrupt it: CHANGED, LEFT (it matches the
filter no longer) and DELETED. With -o json it is one JSON document a line. A lost connection is made
again and nothing is missed.

With --as-of the machines are shown as they were then.

With --view they are those of a saved view, in its order and with its columns; --filter narrows them
further. --watch and --as-of have an order of their own.` + filterHelp,
		Example: `  ingot list
  ingot list --filter phase=MAINTENANCE,labels.env=prod
  ingot list --filter 'rack in (r41, r42), state!=IDLE' --order-by rack
  ingot list --order-by 'updated_at desc' --limit 20
  ingot list --filter state=ATTENTION --watch
  ingot list --filter state=ATTENTION --as-of 03:12
  ingot list --view gpu-racks --filter state=IDLE
  ingot list -o json | jq -r '.machines[] | select(.status.effective_state == "ATTENTION").machine_id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.applyView(cmd, &f); err != nil {
				return err
			}
			if f.watch {
				return a.watchMachines(cmd, f)
			}
			return a.listMachines(cmd, f)
		},
	}
	cmd.Flags().StringVar(&f.filter, "filter", "", "terms such as phase=READY,labels.env=prod")
	cmd.Flags().StringVar(&f.filter, "select", "", "the same as --filter")
	cmd.Flags().StringVar(&f.order, "order-by", "",
		"machine_id, site, rack, updated_at or effective_state; 'KEY desc' is the other way round")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most so many; 0 is all")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "go on with every change")
	cmd.Flags().StringVar(&f.view, "view", "", "saved view to list (ingot view list)")
	f.asOf.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("filter", "select")
	cmd.MarkFlagsMutuallyExclusive("as-of", "watch")
	cmd.MarkFlagsMutuallyExclusive("as-of", "order-by")
	a.app.Must(cmd.RegisterFlagCompletionFunc("view", a.app.CompleteViews()))
	command.Fixed(cmd, "order-by", "machine_id", "site", "rack", "updated_at", "effective_state")
	return cmd
}

func (a commands) listMachines(cmd *cobra.Command, f listFlags) error {
	at, err := f.asOf.Read(a.app)
	if err != nil {
		return err
	}
	machines, err := command.All[*pb.Machine](
		cmd.Context(),
		f.limit,
		a.app.Services().Machines.ListMachines,
		&pb.ListMachinesRequest{Filter: f.filter, OrderBy: f.order, AsOf: at},
	)
	if err != nil {
		return err
	}
	if f.limit == 0 && f.order == "" {
		slices.SortStableFunc(machines,
			func(x, y *pb.Machine) int { return command.CompareNames(x.GetMachineId(), y.GetMachineId()) })
	}
	return a.app.Print(&pb.ListMachinesResponse{Machines: machines}, func() string {
		if len(f.columns) > 0 && !a.app.Wide() {
			return a.app.Style().MachineColumns(machines, f.columns).String()
		}
		return command.Table(a.app, view.Style.Machines, machines...)
	}, command.Names(machines, (*pb.Machine).GetMachineId)...)
}

// watchMachines prints the machines that match, then every change of them.
func (a commands) watchMachines(cmd *cobra.Command, f listFlags) error {
	if f.order != "" || f.limit != 0 {
		return command.Usagef("--watch goes with neither --order-by nor --limit")
	}
	svc := a.app.Services()
	// A wrong address, token or filter is found here, before the watch starts to be patient.
	_, err := svc.Machines.ListMachines(cmd.Context(), &pb.ListMachinesRequest{Filter: f.filter, PageSize: 1})
	if err != nil {
		return err
	}
	return follow.Watch(cmd.Context(), follow.WatchConfig[follow.MachineEvent]{
		Source: follow.MachineEvents(svc.Machines, f.filter),
		Clock:  a.app.Config.Clock,
		Lost:   func() { a.app.Note("! connection lost, retrying…") },
	}, func(ev follow.MachineEvent) error {
		if ev.GetKind() == pb.MachineEvent_BOOKMARK && a.app.Flags.Output != "json" && a.app.Flags.Output != "yaml" {
			return nil // nothing has happened
		}
		return a.app.Stream(ev.MachineEvent, func() string { return a.app.Style().MachineLine(ev.MachineEvent) },
			ev.GetMachine().GetMachineId())
	})
}
