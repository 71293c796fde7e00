package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/names"
	"github.com/ingot-metal/ingot/cli/view"
)

// Targets are the machines that a verb acts on: names with ranges, a filter, all, or a file of names.
type Targets struct {
	filter, file string
	all          bool
}

// TargetsHelp ends the long help of verbs that take several machines.
const TargetsHelp = `

Machines are names, also with ranges such as r42-[01-16], those of --select, of a file, or --all. More
than one are a rollout: asked for once with their count (--yes for scripts), under the budgets, and
carried out by the controller whatever becomes of this command. The exit code is 5 if one has failed, or
if one that was named is left out.`

// Register adds the flags; -f for the file unless the verb has another use for it.
func (t *Targets) Register(a *App, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.filter, "select", "", "machines that a filter matches, such as 'rack=r42,state=NEW'; see ingot list")
	f.BoolVar(&t.all, "all", false, "every machine")
	const help = "file with names of machines, one or several a line; - is standard input"
	if f.Lookup("file") == nil {
		f.StringVarP(&t.file, "file", "f", "", help)
	} else {
		f.StringVar(&t.file, "machines-file", "", help)
	}
	cmd.Args = func(_ *cobra.Command, args []string) error { return t.check(args) }
	cmd.ValidArgsFunction = a.CompleteMachines()
}

func (t *Targets) check(args []string) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, t.filter != "", t.all, t.file != ""} {
		if given {
			ways++
		}
	}
	switch ways {
	case 0:
		return Usagef("which machines? Give names, --select FILTER, --all or a file of names")
	case 1:
		return nil
	}
	return Usagef("give names, --select, --all or a file of names, not several of them")
}

// Single is the one machine that is named; false where the words may stand for several.
func (t *Targets) Single(args []string) (string, bool) {
	if len(args) != 1 || strings.ContainsAny(args[0], "[]") {
		return "", false
	}
	return args[0], true
}

// terms returns the filter that selects the machines; empty where names do.
func (t *Targets) terms() string {
	if t.all {
		return "machine_id=*"
	}
	return t.filter
}

// names are those that are given, in their order; nil where a filter selects the machines.
func (a *App) names(t *Targets, args []string) ([]string, error) {
	if t.filter != "" || t.all {
		return nil, nil
	}
	if t.file != "" {
		raw, err := a.ReadInput(t.file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			line, _, _ = strings.Cut(line, "#")
			args = append(args, strings.Fields(line)...)
		}
	}
	out, err := names.ExpandAll(args)
	switch {
	case err != nil:
		return nil, Usagef("%w", err)
	case len(out) == 0:
		return nil, Usagef("%s names no machine", t.file)
	}
	return out, nil
}

// Machines are the ids of the machines, in the order of people.
func (a *App) Machines(ctx context.Context, svc *Services, t *Targets, args []string) ([]string, error) {
	out, err := a.names(t, args)
	if err != nil || out != nil {
		return out, err
	}
	machines, err := All[*pb.Machine](ctx, 0, svc.Machines.ListMachines, &pb.ListMachinesRequest{Filter: t.filter})
	for _, m := range machines {
		out = append(out, m.GetMachineId())
	}
	slices.SortFunc(out, names.Compare)
	return out, err
}

// selected returns the id of a selection that has the machines.
func (a *App) selected(
	ctx context.Context, svc *Services, t *Targets, args []string, requestID string,
) (string, error) {
	sel, err := a.selection(ctx, svc, t, args, requestID)
	if err == nil && sel.GetCount() == 0 {
		err = noMatch(sel.GetFilter())
	}
	return sel.GetSelectionId(), err
}

func noMatch(filter string) error {
	return &ExitError{Code: ExitNotFound, Err: fmt.Errorf("no machine matches %s", filter)}
}

var errManyNames = errors.New("too many names")

// maxFilter is the length of the longest filter that the controller takes, in bytes.
const maxFilter = 4096

// filterOf returns a filter of the machines. It refuses names of which the controller has no machine, and more names
// than a filter takes.
func (a *App) filterOf(ctx context.Context, svc *Services, t *Targets, args []string) (string, error) {
	given, err := a.names(t, args)
	switch {
	case err != nil:
		return "", err
	case given == nil:
		return t.terms(), nil
	}
	text := "machine_id in (" + names.List(given) + ")"
	if len(text) > maxFilter {
		return "", Usagef("%w for --validate-only, %d; use --select or --all", errManyNames, len(given))
	}
	found, err := a.Machines(ctx, svc, &Targets{filter: text}, nil)
	if err != nil {
		return "", err
	}
	missing := slices.DeleteFunc(given, func(n string) bool { return slices.Contains(found, n) })
	if len(missing) > 0 {
		return "", &ExitError{Code: ExitNotFound, Err: fmt.Errorf("no such machine: %s", view.NameList(missing))}
	}
	return text, nil
}

// selection keeps the machines in the controller, under a request id of the verb's own.
func (a *App) selection(
	ctx context.Context, svc *Services, t *Targets, args []string, requestID string,
) (*pb.Selection, error) {
	r := &pb.CreateSelectionRequest{RequestId: requestID + "/selection", Filter: t.terms()}
	var err error
	if r.MachineIds, err = a.names(t, args); err != nil {
		return nil, err
	}
	return svc.Rollouts.CreateSelection(ctx, r)
}

// eachHelp ends the long help of verbs that make a call for one machine after the other, without an operation.
const eachHelp = `

Machines are names, also with ranges such as r42-[01-16], those of --select, of a file, or --all. They come
one after the other; one that fails leaves the others alone, and the exit code is then not 0.`

// ForEach makes cmd a verb that calls do for one machine after the other, without an operation. question, which holds a
// %d for their number, is asked for several machines, unless it is empty.
func (a *App) ForEach(
	cmd *cobra.Command, question string, do func(ctx context.Context, svc *Services, machine string) error,
) *cobra.Command {
	var t Targets
	var yes, dry bool
	t.Register(a, cmd)
	cmd.Long += eachHelp
	if question != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask before it is done to several machines")
		cmd.Flags().BoolVar(&dry, "dry-run", false, "say which machines these are, and do nothing")
	}
	cmd.RunE = a.Run(func(cmd *cobra.Command, svc *Services, args []string) error {
		machines, err := a.Machines(cmd.Context(), svc, &t, args)
		if err != nil {
			return err
		}
		if len(machines) == 0 {
			return &ExitError{Code: ExitNotFound, Err: errors.New("no machine matches; nothing was done")}
		}
		if dry {
			return a.Write(strings.Join(machines, "\n") + "\n")
		}
		if _, single := t.Single(args); !single && len(machines) > 1 && question != "" {
			if err := a.ConfirmCount(yes, question, len(machines)); err != nil {
				return err
			}
		}
		return a.each(cmd.Context(), machines, func(ctx context.Context, machine string) error {
			return do(ctx, svc, machine)
		})
	})
	return cmd
}

// each goes on after a machine that fails, and returns the first failure.
func (a *App) each(ctx context.Context, machines []string, do func(context.Context, string) error) error {
	var first error
	failed := 0
	for _, m := range machines {
		a.Subject.Machine = m
		err := do(ctx, m)
		switch {
		case errors.Is(err, context.Canceled):
			return err
		case err != nil && len(machines) == 1:
			return err
		case err != nil:
			failed++
			a.Note("%s: %s", m, ErrorText(err))
			if first == nil {
				first = err
			}
		}
	}
	if first != nil {
		return &ExitError{Code: ExitCode(first), Err: Usagef("%d of %d machines failed", failed, len(machines))}
	}
	return nil
}
