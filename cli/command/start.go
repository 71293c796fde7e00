package command

import (
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/ids"
)

// WorkFlags are the flags of every command that starts work.
type WorkFlags struct {
	RequestID   string
	wait        bool
	noWait      bool
	stepTimeout time.Duration
}

// WaitHelp ends the long help of the commands that start work.
const WaitHelp = `

The operation is shown live until it ends; --no-wait returns as soon as it is accepted. Interrupting the view
does not stop the operation. Repeat the command with the same --request-id to see it again without starting
anything new.`

// Register adds the flags to a command.
func (w *WorkFlags) Register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.RequestID, "request-id", "", "idempotency key; made and printed when absent")
	f.BoolVar(&w.wait, "wait", true, "show the operation until it ends")
	f.BoolVar(&w.noWait, "no-wait", false, "return as soon as the operation is accepted")
	f.DurationVar(&w.stepTimeout, "step-timeout", 0, "how long one try of a step may take (default: the plan's)")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
}

// Waits reports whether the command shows the operation until it ends.
func (w *WorkFlags) Waits() bool { return w.wait && !w.noWait }

// StepSeconds is the limit as the API takes it: whole seconds, at least one when a limit was given.
func (w *WorkFlags) StepSeconds() (int32, error) {
	if w.stepTimeout == 0 {
		return 0, nil
	}
	return Seconds("--step-timeout", w.stepTimeout, time.Second)
}

// longest is the longest time that a flag takes: what the API's fields hold.
const longest = math.MaxInt32 * time.Second

// Seconds returns the time of a flag as the API takes it: whole seconds. It refuses one that is shorter than least, or
// too long for the field.
func Seconds(flag string, d, least time.Duration) (int32, error) {
	if d < least || d > longest || d%time.Second != 0 {
		return 0, Usagef("%s is a time in whole seconds, from %d to %d, such as 90s or 10m", flag, least/time.Second,
			longest/time.Second)
	}
	return int32(d / time.Second), nil
}

// Request returns the request id, and prints it before anything is sent: whatever happens after, the caller can repeat
// the same request.
func (a *App) Request(w *WorkFlags) string {
	if w.RequestID == "" {
		w.RequestID = ids.New("req")
		if _, err := a.connect(); err == nil { // else nothing is sent
			a.Note("Request: %s", w.RequestID)
		}
	}
	return w.RequestID
}

// Start is a call that starts work.
type Start func(ctx context.Context, svc *Services, requestID string, stepSeconds int32) (*pb.Operation, error)

// Work starts an operation on a machine and shows it.
func (a *App) Work(cmd *cobra.Command, machine string, w *WorkFlags, call Start) error {
	a.Subject.Machine = machine
	seconds, err := w.StepSeconds()
	if err != nil {
		return err
	}
	svc := a.Services()
	ctx := cmd.Context()
	var before *pb.Machine
	if w.Waits() {
		if before, err = MachineBefore(ctx, svc, machine); err != nil {
			return err
		}
	}
	op, err := call(ctx, svc, a.Request(w), seconds)
	if err != nil {
		return err
	}
	a.Subject.Operation = op.GetOperationId()
	if !w.Waits() {
		return a.Print(op, func() string { return a.Style().OperationLine(op) }, op.GetOperationId())
	}
	return a.Show(ctx, svc, op, before)
}

// NotOperation reports whether a subject that begins as ids of operations do may be a machine: there is no such
// operation, and it has not the form of an id.
func NotOperation(err error, subject string) bool {
	return apiclient.Reason(err) == pb.Reason_OPERATION_NOT_FOUND && !ids.Valid(ids.Operation, subject)
}

// MachineBefore reads the machine before the work, for the comparison at the end. Only a token that may start work and
// not read leaves it unknown.
func MachineBefore(ctx context.Context, svc *Services, id string) (*pb.Machine, error) {
	m, err := svc.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: id})
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unimplemented:
		return nil, nil
	}
	return m, err
}

// Show follows an operation to its end and turns the end into the exit code.
func (a *App) Show(ctx context.Context, svc *Services, op *pb.Operation, before *pb.Machine) error {
	final := op
	if view.Finished(op) {
		a.alreadyOver(op)
	} else {
		var err error
		if final, err = a.Live(ctx, svc, op, before); err != nil {
			return err
		}
	}
	if a.Document() {
		if err := a.Print(final, nil, final.GetOperationId()); err != nil {
			return err
		}
	}
	a.hintForResult(final)
	return ExitByPhase(final.GetPhase())
}

// hintForResult prints the hint for an operation that failed.
func (a *App) hintForResult(op *pb.Operation) {
	code := op.GetError().GetCode()
	if text, ok := hints[pb.Reason(pb.Reason_value[code])]; ok && op.GetPhase() == pb.Operation_FAILED {
		a.Note("hint: %s", a.fill(text, op.GetError().GetDetails()))
	}
}
