package inventory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

type importFlags struct {
	file, prefix, provider, site string
	start                        int
	labels                       []string
}

const mostImported = 100_000

func (a commands) importCmd() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import N | import -f FILE",
		Short: "Register N machines, or those of a file",
		Long: `Register N machines named machine-1 to machine-N, for trying things out: their provider is
fake unless --provider says otherwise. With -f, register the machines of a YAML, JSON or CSV file
instead; the flags for provider, site and labels then fill in what the file leaves out.

A machine that is known already has its spec and labels updated, so an import that broke off is
simply repeated. Every machine of a file is checked before the first is written.

A CSV file (.csv, .tsv, .txt) has the columns of ingot rack import, and any other field of the
spec. Commas, semicolons and tabs are read, in UTF-8 and UTF-16.`,
		Example: `  ingot import 3
  ingot import 20 --prefix sim- --start 100 --label env=demo
  ingot import -f machines.csv --site berlin

  # machines.yaml
  - machine_id: m-1
    labels: {env: prod}
    spec: {provider: agent, rack: r42, mac_addresses: ["52:54:00:12:34:56"]}`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.file != "" && len(args) == 1 {
				return command.Usagef("give a number or -f FILE, not both")
			}
			if f.file != "" {
				if !cmd.Flags().Changed("provider") {
					f.provider = ""
				}
				return a.importFile(cmd.Context(), &f)
			}
			machines, err := f.numbered(args)
			if err != nil {
				return err
			}
			return a.importAll(cmd.Context(), machines)
		},
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "YAML, JSON or CSV file; - is standard input (YAML or JSON)")
	cmd.Flags().StringVar(&f.prefix, "prefix", "machine-", "what the ids begin with")
	cmd.Flags().IntVar(&f.start, "start", 1, "first number")
	cmd.Flags().StringVar(&f.provider, "provider", "fake", "provider of the machines; with -f only if given")
	cmd.Flags().StringVar(&f.site, "site", "", "site of the machines")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "label as key=value; may be given several times")
	return cmd
}

// importFile registers the machines of a file, once all of them have been checked.
func (a commands) importFile(ctx context.Context, f *importFlags) error {
	file, err := a.readMachines(f.file)
	if err != nil {
		return err
	}
	svc := a.app.Services()
	known, err := knownMachines(ctx, svc)
	if err != nil {
		return err
	}
	p := &rackPlan{file: file}
	for _, row := range file.rows {
		m := file.machine(row)
		if err := f.fill([]*pb.Machine{m}); err != nil {
			return err
		}
		p.take(known, row, m, f.site != "")
	}
	if err := file.err(); err != nil {
		return err
	}
	check := func(m, _ *pb.Machine) error {
		_, err := svc.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: m, ValidateOnly: true})
		return err
	}
	if err := p.check(p.said, check); err != nil {
		return err
	}
	return a.importAll(ctx, p.said)
}

// numbered returns machines of which only the number is known.
func (f *importFlags) numbered(args []string) ([]*pb.Machine, error) {
	if len(args) == 0 {
		return nil, command.Usagef("how many? ingot import N, or ingot import -f FILE")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > mostImported {
		return nil, command.Usagef("%q is not a number from 1 to %d", args[0], mostImported)
	}
	machines := make([]*pb.Machine, n)
	for i := range machines {
		machines[i] = &pb.Machine{MachineId: f.prefix + strconv.Itoa(f.start+i)}
	}
	return machines, f.fill(machines)
}

// fill sets what the machines themselves leave open.
func (f *importFlags) fill(machines []*pb.Machine) error {
	for _, m := range machines {
		if m.Spec == nil {
			m.Spec = &pb.MachineSpec{}
		}
		if m.Spec.Provider == "" {
			m.Spec.Provider = f.provider
		}
		if m.Spec.Site == "" {
			m.Spec.Site = f.site
		}
		if err := applyLabels(m, f.labels); err != nil {
			return err
		}
	}
	return nil
}

func (a commands) importAll(ctx context.Context, machines []*pb.Machine) error {
	svc := a.app.Services()
	done := make([]*pb.Machine, 0, len(machines))
	names := make([]string, 0, len(machines))
	for _, m := range machines {
		got, err := svc.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: m})
		if err != nil {
			a.app.Note("%d of %d registered, then %s failed; correct it and repeat the import", len(done), len(machines),
				m.GetMachineId())
			return err
		}
		done, names = append(done, got), append(names, got.GetMachineId())
	}
	return a.app.Print(&pb.ListMachinesResponse{Machines: done}, func() string { return importedText(names) }, names...)
}

func importedText(names []string) string {
	switch len(names) {
	case 0:
		return "Nothing to register\n"
	case 1:
		return "Registered " + names[0] + "\n"
	}
	return fmt.Sprintf("Registered %d machines: %s … %s\n", len(names), names[0], names[len(names)-1])
}
