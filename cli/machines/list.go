package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/names"
	"github.com/ingot-metal/ingot/cli/view"
)

// filterHelp is what the filters of machines have in common.
const filterHelp = `

Filter terms, all of which must hold, are joined by commas: key=value, key!=value, key in (a, b),
key not in (a, b). Keys: phase, state, node_state, provider, site, region, rack, group, location,
serial, cluster, machine_id, image, labels.KEY, conditions.TYPE (true, false, unknown) and
attention_reason (NOT_OBSERVED). A value may end in *; quotes keep a
comma.`

// columnsHelp lists the columns of machines.
const columnsHelp = `machine_id, effective_state, phase, node_state, attention_reason,
conditions, active_operation_id, site, region, rack, group, location, provider, cluster, serial,
mac_addresses, image, power_state, last_heartbeat_at, created_at, updated_at, labels, labels.KEY`

// listFlags are those of `ingot list`.
type listFlags struct {
	filter, order string
	view, sort    string
	columns       []string
	limit         int
	watch         bool
	asOf          command.AsOf
}

func (a commands) listCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list [MACHINE…]",
		Short: "List machines with phase, effective state and conditions",
		Long: `List all machines, or those that are named by id or external id, also with ranges such as
r42-[01-16]. PHASE is what the operator intends, EFFECTIVE is what the machine is doing right now.
-o wide adds node state, provider, site, rack, image, serial number, addresses, conditions and labels.

--columns chooses the columns: ` + columnsHelp + `.
--sort-by sorts by any of them, and --order-by, which the controller does, by few.

With --watch every change follows, a line each, until you interrupt it: CHANGED, LEFT (it matches the
filter no longer) and DELETED. With -o json it is one JSON document a line. A lost connection is made
again and nothing is missed.

With --as-of the machines are shown as they were then.

With --view they are those of a saved view, in its order and with its columns; --filter narrows them
further. --watch and --as-of have an order of their own.` + filterHelp,
		Example: `  ingot list
  ingot list m-1 r42-[01-16]
  ingot list --columns machine_id,rack,serial --sort-by 'rack desc'
  ingot list -o jsonpath='$.machines[?@.status.effective_state == "ATTENTION"].machine_id'
  ingot list --filter phase=MAINTENANCE,labels.env=prod
  ingot list --filter 'rack in (r41, r42), state!=IDLE' --order-by rack
  ingot list --order-by 'updated_at desc' --limit 20
  ingot list --filter state=ATTENTION --watch
  ingot list --filter state=ATTENTION --as-of 03:12
  ingot list --view gpu-racks --filter state=IDLE
  ingot list -o json | jq -r '.machines[] | select(.status.effective_state == "ATTENTION").machine_id'`,
		ValidArgsFunction: a.app.CompleteMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if err := a.applyView(cmd, &f); err != nil {
				return err
			}
			if f.watch {
				return a.watchMachines(cmd, f)
			}
			return a.listMachines(cmd, f, args)
		},
	}
	cmd.Flags().StringVar(&f.filter, "filter", "", "terms such as phase=READY,labels.env=prod")
	cmd.Flags().StringVar(&f.filter, "select", "", "the same as --filter")
	cmd.Flags().StringVar(&f.order, "order-by", "",
		"machine_id, site, rack, updated_at or effective_state; 'KEY desc' is the other way round")
	cmd.Flags().StringSliceVar(&f.columns, "columns", nil, "what is shown of each machine, from left to right")
	cmd.Flags().StringVar(&f.sort, "sort-by", "", "column to sort by; 'COLUMN desc' is the other way round")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most so many; 0 is all")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "go on with every change")
	cmd.Flags().StringVar(&f.view, "view", "", "saved view to list (ingot view list)")
	f.asOf.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("filter", "select")
	cmd.MarkFlagsMutuallyExclusive("sort-by", "order-by")
	cmd.MarkFlagsMutuallyExclusive("as-of", "watch")
	cmd.MarkFlagsMutuallyExclusive("as-of", "order-by")
	a.app.Must(cmd.RegisterFlagCompletionFunc("view", a.app.CompleteViews()))
	command.Fixed(cmd, "order-by", "machine_id", "site", "rack", "updated_at", "effective_state")
	command.Fixed(cmd, "sort-by", view.MachineColumnNames()...)
	command.Fixed(cmd, "columns", view.MachineColumnNames()...)
	return cmd
}

// check refuses columns that there are not, and flags that exclude each other.
func (f *listFlags) check(args []string) error {
	column, _ := f.sorting()
	for _, name := range append([]string{cmp.Or(column, "machine_id")}, f.columns...) {
		key, isLabel := strings.CutPrefix(name, "labels.")
		if !slices.Contains(view.MachineColumnNames(), name) && (!isLabel || key == "") {
			return command.Usagef("there is no column %q; columns are %s and labels.KEY", name,
				strings.Join(view.MachineColumnNames(), ", "))
		}
	}
	switch {
	case f.watch && (f.sort != "" || len(f.columns) > 0):
		return command.Usagef("--watch goes with neither --sort-by nor --columns")
	case f.watch && len(args) > 0, f.filter != "" && len(args) > 0, f.view != "" && len(args) > 0:
		return command.Usagef("names of machines go with neither --filter, --select, --view nor --watch")
	}
	return nil
}

// sorting returns the column that --sort-by names, and whether the order is descending.
func (f *listFlags) sorting() (column string, descending bool) {
	column, descending = strings.CutSuffix(f.sort, " desc")
	return strings.TrimSpace(column), descending
}

func (a commands) listMachines(cmd *cobra.Command, f listFlags, args []string) error {
	at, err := f.asOf.Read(a.app)
	if err != nil {
		return err
	}
	request := &pb.ListMachinesRequest{Filter: f.filter, OrderBy: f.order, AsOf: at}
	var machines []*pb.Machine
	var missing error
	if len(args) > 0 {
		machines, missing, err = a.named(cmd.Context(), request, args)
	} else {
		limit := f.limit
		if f.sort != "" {
			limit = 0 // the first of the order are among all
		}
		machines, err = command.All[*pb.Machine](cmd.Context(), limit, a.app.Services().Machines.ListMachines, request)
	}
	if err != nil {
		return err
	}
	switch column, descending := f.sorting(); {
	case column != "":
		view.SortMachines(machines, column, descending, names.Compare)
	case f.order == "" && (f.limit == 0 || len(args) > 0):
		view.SortMachines(machines, "machine_id", false, names.Compare)
	}
	if f.limit > 0 {
		machines = machines[:min(f.limit, len(machines))]
	}
	if len(machines) == 0 && missing != nil {
		return missing
	}
	if err := a.app.Print(&pb.ListMachinesResponse{Machines: machines}, func() string {
		if len(f.columns) > 0 && (!a.app.Wide() || cmd.Flags().Changed("columns")) {
			return a.app.Style().MachineColumns(machines, f.columns).String()
		}
		return command.Table(a.app, view.Style.Machines, machines...)
	}, command.Names(machines, (*pb.Machine).GetMachineId)...); err != nil {
		return err
	}
	return missing
}

// namesAtOnce is how many machines one filter names: it takes 4,096 bytes, and an id up to 128.
const namesAtOnce = 25

// named reads the machines with these ids or external ids, each once. missing names those that there are not.
func (a commands) named(
	ctx context.Context, request *pb.ListMachinesRequest, args []string,
) (found []*pb.Machine, missing, err error) {
	wanted, err := names.ExpandAll(args)
	if err != nil {
		return nil, nil, command.Usagef("%w", err)
	}
	svc := a.app.Services()
	byName := map[string]*pb.Machine{}
	for some := range slices.Chunk(wanted, namesAtOnce) {
		request.Filter = "machine_id in (" + names.List(some) + ")"
		all, err := command.All[*pb.Machine](ctx, 0, svc.Machines.ListMachines, request)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range all {
			byName[m.GetMachineId()] = m
		}
	}
	var unknown []string
	have := map[string]bool{}
	for _, name := range wanted {
		m := byName[name]
		if m == nil && request.GetAsOf() == nil {
			m, err = svc.Machines.GetMachine(ctx, &pb.GetMachineRequest{ExternalId: name})
			if err != nil && apiclient.Reason(err) != pb.Reason_MACHINE_NOT_FOUND {
				return nil, nil, err
			}
		}
		switch {
		case m.GetMachineId() == "":
			unknown = append(unknown, name)
		case !have[m.GetMachineId()]:
			have[m.GetMachineId()] = true
			found = append(found, m)
		}
	}
	if len(unknown) > 0 {
		missing = &command.ExitError{Code: command.ExitNotFound,
			Err: fmt.Errorf("no such machine: %s (%s)", view.NameList(unknown), pb.Reason_MACHINE_NOT_FOUND)}
	}
	return found, missing, nil
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
		if ev.GetKind() == pb.MachineEvent_BOOKMARK && !a.app.ForPrograms() {
			return nil // nothing has happened
		}
		return a.app.Stream(ev.MachineEvent, func() string { return a.app.Style().MachineLine(ev.MachineEvent) },
			ev.GetMachine().GetMachineId())
	})
}
