package work

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) whyCmd() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "why MACHINE | OPERATION",
		Short: "Explain what a machine is doing, on whom it waits, and what you may do",
		Long: `Explain a machine, or one operation (op-…): the first line is the answer. Then on whom it
waits and since when, how long such a step takes normally, what happens next by itself, the last
thing that the world has shown, what the cause is read from, and what you may do, with its
consequence. "!" marks what loses data, interrupts work or overrides a safeguard.

It reads, and changes nothing. With --check the exit code is 4 if somebody must act: an operator is
waited for because something is wrong, or the step is stuck.`,
		Example: `  ingot why m-1
  ingot why op-01k
  ingot why m-1 -o json
  ingot why m-1 --check || page-somebody`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.CompleteMachines()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.Services()
			if err != nil {
				return err
			}
			e, err := svc.Machines.ExplainMachine(cmd.Context(), a.explainRequest(args[0]))
			if err != nil {
				return err
			}
			if err := a.Print(e, func() string { return a.Style().Explain(e, a.Now()) }, e.GetMachineId()); err != nil {
				return err
			}
			if check && mustAct(e) {
				return &command.ExitError{Code: command.ExitRefused}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "exit code 4 if somebody must act")
	return cmd
}

// explainRequest asks for an operation, or for a machine.
func (a commands) explainRequest(subject string) *pb.ExplainMachineRequest {
	if strings.HasPrefix(subject, "op-") {
		a.Subject.Operation = subject
		return &pb.ExplainMachineRequest{OperationId: subject}
	}
	a.Subject.Machine = subject
	return &pb.ExplainMachineRequest{MachineId: subject}
}

// mustAct says that nothing goes on without a person.
func mustAct(e *pb.ExplainMachineResponse) bool {
	return e.GetStuck() || e.GetWaitsOn() == "operator" && e.GetReason() != ""
}
