package machines

import (
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

// viewFlags are the flags of `ingot view set`, each with the field that it sets.
var viewFlags = map[string]string{
	"title": "title", "description": "description", "filter": "filter", "order-by": "order_by", "columns": "columns",
	"group-by": "group_by", "shared": "shared",
}

func (a commands) viewCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "view",
		Short: "Saved lists of machines",
		Long: `A view is a list of machines under a name: a filter, an order, columns and groups. A personal view
is its owner's alone. A shared one is everybody's to see, and its owner's and admins' to change.`,
		Example: `  ingot view set gpu-racks --filter 'labels.gpu=*' --columns machine_id,rack,effective_state
  ingot list --view gpu-racks`,
	}
	cmd.AddCommand(a.viewListCmd(), a.viewShowCmd(), a.viewSetCmd(), a.viewDeleteCmd())
	return cmd
}

func (a commands) viewListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Views.ListViews, (*pb.View).GetName, view.Style.Views).
		Command(a.app, &cobra.Command{
			Short:   "List the views that are shared, and your own",
			Long:    `List the views that are shared, and your own, by name.`,
			Example: "  ingot view list",
		}, "shared=true", "updated_at desc")
}

func (a commands) viewShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show what a view is",
		Long:              `Show what a view is; ingot list --view shows its machines.`,
		Example:           "  ingot view show gpu-racks",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteViews()),
		RunE:              command.Show(a.app, a.app.Services().Views.GetView, (*pb.View).GetName, view.Style.View),
	}
}

func (a commands) viewSetCmd() *cobra.Command {
	v := &pb.View{}
	r := &pb.SetViewRequest{View: v}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a view, or change one",
		Long: `Make a view, or change what the flags name of one; the rest stays. An empty value clears.
Columns: ` + columnsHelp + `.` + filterHelp,
		Example: `  ingot view set gpu-racks --filter 'labels.gpu=*' --columns machine_id,rack,effective_state
  ingot view set gpu-racks --title 'Racks with GPUs' --shared
  ingot view set gpu-racks --shared=false`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteViews()),
		RunE: func(cmd *cobra.Command, args []string) error {
			v.Name, r.UpdateMask = args[0], &fieldmaskpb.FieldMask{}
			for flag, field := range viewFlags {
				if cmd.Flags().Changed(flag) {
					r.UpdateMask.Paths = append(r.UpdateMask.Paths, field)
				}
			}
			if len(r.UpdateMask.Paths) == 0 {
				return command.Usagef("say what the view has: --filter, --order-by, --columns, --group-by, --title, …")
			}
			r.UpdateMask.Normalize()
			svc := a.app.Services()
			set, err := svc.Views.SetView(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(set, func() string {
				return "Set view " + set.GetName() + "\n" + a.app.Style().View(set)
			}, set.GetName())
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.Title, "title", "", "what people call it")
	f.StringVar(&v.Description, "description", "", "what it is for")
	f.StringVar(&v.Filter, "filter", "", "which machines, such as site=berlin,labels.gpu=*")
	f.StringVar(&v.OrderBy, "order-by", "", "as in ingot list")
	f.StringSliceVar(&v.Columns, "columns", nil, "what is shown of each machine, from left to right")
	f.StringSliceVar(&v.GroupBy, "group-by", nil, "what the console groups machines by: up to 3 keys of the filter")
	f.BoolVar(&v.Shared, "shared", false, "everybody sees it; needs scope operate")
	f.BoolVar(&r.CreateOnly, "create-only", false, "fail where there is one already")
	return cmd
}

func (a commands) viewDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a view",
		Long:              `Delete a view of your own; an admin deletes any.`,
		Example:           "  ingot view delete gpu-racks",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteViews()),
		RunE:              command.Do(a.app, "Deleted view", a.app.Services().Views.DeleteView, (*pb.View).GetName),
	}
}

// applyView takes over the settings of a saved view that no flag sets. A list at a moment of the past and one that is
// watched come in an order of their own.
func (a commands) applyView(cmd *cobra.Command, f *listFlags) error {
	if f.view == "" {
		return nil
	}
	svc := a.app.Services()
	v, err := svc.Views.GetView(cmd.Context(), &pb.GetViewRequest{Name: f.view})
	if err != nil {
		return err
	}
	f.filter = command.JoinFilter("", v.GetFilter(), "", strings.TrimSpace(f.filter))
	if !cmd.Flags().Changed("columns") {
		f.columns = v.GetColumns()
	}
	if f.sort == "" && !cmd.Flags().Changed("order-by") && !cmd.Flags().Changed("as-of") && !f.watch {
		f.order = v.GetOrderBy()
	}
	return nil
}
