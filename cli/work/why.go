package work

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) whyCmd() *cobra.Command {
	var check bool
	var filter string
	cmd := &cobra.Command{
		Use:   "why MACHINE | OPERATION | --filter FILTER",
		Short: "Explain what a machine is doing, on whom it waits, and what you may do",
		Long: `Explain a machine, or one operation (op-…): the first line is the answer. Then on whom it
waits and since when, how long such a step takes normally, what happens next by itself, the last
thing that the world has shown, what the cause is read from, and what you may do, with its
consequence. "!" marks what loses data, interrupts work or overrides a safeguard.

With --filter, explain all machines that match, in short: --filter state=ATTENTION are those that need
somebody. Machines with one cause, such as a silent site, are one entry.

It reads, and changes nothing. With --check the exit code is 4 if somebody must act: an operator is
waited for because something is wrong, or the step is stuck.`,
		Example: `  ingot why m-1
  ingot why op-01k
  ingot why --filter state=ATTENTION
  ingot why --filter rack=r42 -o json
  ingot why m-1 -o json
  ingot why m-1 --check || page-somebody`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (filter != "") {
				return command.Usagef("name a machine or an operation, or give --filter\nsee: ingot why --help")
			}
			svc := a.app.Services()
			if filter != "" {
				return a.whyMany(cmd, svc, filter, check)
			}
			e, err := svc.Machines.ExplainMachine(cmd.Context(), a.explainRequest(args[0]))
			if command.NotOperation(err, args[0]) {
				e, err = svc.Machines.ExplainMachine(cmd.Context(), &pb.ExplainMachineRequest{MachineId: args[0]})
			}
			if err != nil {
				return err
			}
			if err := a.app.Print(e, func() string { return a.app.Style().Explain(e) }, e.GetMachineId()); err != nil {
				return err
			}
			if check && mustAct(e) {
				return &command.ExitError{Code: command.ExitRefused}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "exit code 4 if a person must act")
	cmd.Flags().StringVar(&filter, "filter", "", "explain the machines that match, such as state=ATTENTION,site=berlin")
	return cmd
}

// whyMany explains all machines that a filter matches.
func (a commands) whyMany(cmd *cobra.Command, svc *command.Services, filter string, check bool) error {
	var shared []*pb.SharedCause
	all, err := command.Pages(0, func(_ int32, token string) ([]*pb.ExplainedMachine, string, error) {
		r, err := svc.Machines.ExplainMachines(cmd.Context(),
			&pb.ExplainMachinesRequest{Filter: filter, PageToken: token})
		shared = append(shared, r.GetSharedCauses()...)
		return r.GetMachines(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.GetExplanation().GetMachineId()
	}
	if err := a.app.Print(&pb.ExplainMachinesResponse{Machines: all, SharedCauses: shared},
		func() string { return sharedCauses(a.app.Style(), shared) + a.app.Style().Explained(all) },
		names...); err != nil {
		return err
	}
	if check && len(shared) > 0 {
		return &command.ExitError{Code: command.ExitRefused}
	}
	if check && slices.ContainsFunc(all, func(m *pb.ExplainedMachine) bool { return mustAct(m.GetExplanation()) }) {
		return &command.ExitError{Code: command.ExitRefused}
	}
	return nil
}

// sharedCauses lists the causes that many machines share, an entry for each.
func sharedCauses(style view.Style, all []*pb.SharedCause) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(style.Bad(view.Clean(c.GetText())) + "\n")
		f := &view.Fields{}
		f.Add("  Reason", c.GetReason())
		f.Add("  WaitsOn", view.Clean(c.GetWaitsFor()))
		f.Add("  Since", view.Age(c.GetSince(), style.Now))
		b.WriteString(f.String())
		for _, a := range c.GetActions() {
			b.WriteString("    " + style.Bold(view.Clean(a.GetCommand())) + "\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// explainRequest asks for an operation, or for a machine.
func (a commands) explainRequest(subject string) *pb.ExplainMachineRequest {
	if strings.HasPrefix(subject, "op-") {
		a.app.Subject.Operation = subject
		return &pb.ExplainMachineRequest{OperationId: subject}
	}
	a.app.Subject.Machine = subject
	return &pb.ExplainMachineRequest{MachineId: subject}
}

// mustAct reports whether nothing goes on without a person.
func mustAct(e *pb.ExplainMachineResponse) bool {
	return e.GetStuck() || e.GetWaitsOn() == "operator" && e.GetReason() != ""
}
