package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/ids"
)

// workFlags are the flags of every command that starts work.
type workFlags struct {
	requestID   string
	wait        bool
	noWait      bool
	stepTimeout time.Duration
}

// waitHelp ends the long help of the commands that start work.
const waitHelp = `

The operation is shown live until it ends; --no-wait returns as soon as it is accepted. Interrupting the view
does not stop the operation. Repeat the command with the same --request-id to see it again without starting
anything new.`

func (w *workFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.requestID, "request-id", "", "idempotency key; made and printed when absent")
	f.BoolVar(&w.wait, "wait", true, "show the operation until it ends")
	f.BoolVar(&w.noWait, "no-wait", false, "return as soon as the operation is accepted")
	f.DurationVar(&w.stepTimeout, "step-timeout", 0, "how long one try of a step may take (default: the plan's)")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
}

func (w *workFlags) waits() bool { return w.wait && !w.noWait }

// stepSeconds is the limit as the API takes it: whole seconds, at least one when a limit was given.
func (w *workFlags) stepSeconds() (int32, error) {
	switch {
	case w.stepTimeout == 0:
		return 0, nil
	case w.stepTimeout < time.Second, w.stepTimeout > 1<<31*time.Second-1:
		return 0, usagef("--step-timeout must be at least 1s")
	}
	return int32(w.stepTimeout / time.Second), nil
}

// request gives the request id, and tells it before anything is sent: whatever happens after, the caller can
// repeat the same request.
func (a *app) request(w *workFlags) string {
	if w.requestID == "" {
		w.requestID = ids.New("req")
		a.note("Request: %s", w.requestID)
	}
	return w.requestID
}

// start is a call that starts work.
type start func(ctx context.Context, svc *services, requestID string, stepSeconds int32) (*pb.Operation, error)

// work starts an operation on a machine and shows it.
func (a *app) work(cmd *cobra.Command, machine string, w *workFlags, call start) error {
	a.subject.machine = machine
	seconds, err := w.stepSeconds()
	if err != nil {
		return err
	}
	svc, err := a.services()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	var before *pb.Machine
	if w.waits() {
		if before, err = machineBefore(ctx, svc, machine); err != nil {
			return err
		}
	}
	op, err := call(ctx, svc, a.request(w), seconds)
	if err != nil {
		return err
	}
	a.subject.operation = op.GetOperationId()
	if !w.waits() {
		return a.print(op, func() string { return a.style().OperationLine(op) }, op.GetOperationId())
	}
	return a.show(ctx, svc, op, before)
}

// machineBefore reads the machine that is to be worked on, for the comparison at the end. Only a token that
// may start work and not read leaves it unknown.
func machineBefore(ctx context.Context, svc *services, id string) (*pb.Machine, error) {
	m, err := svc.machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: id})
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unimplemented:
		return nil, nil
	}
	return m, err
}

// show follows an operation to its end and turns the end into the exit code.
func (a *app) show(ctx context.Context, svc *services, op *pb.Operation, before *pb.Machine) error {
	final := op
	if view.Finished(op) {
		a.alreadyOver(op)
	} else {
		var err error
		if final, err = a.live(ctx, svc, op, before); err != nil {
			return err
		}
	}
	if a.document() {
		if err := a.print(final, nil, final.GetOperationId()); err != nil {
			return err
		}
	}
	a.hintForResult(final)
	return exitByPhase(final.GetPhase())
}

// hintForResult says what to do about an operation that failed.
func (a *app) hintForResult(op *pb.Operation) {
	code := op.GetError().GetCode()
	if text, ok := hints[pb.Reason(pb.Reason_value[code])]; ok && op.GetPhase() == pb.Operation_FAILED {
		a.note("hint: %s", a.fill(text, op.GetError().GetDetails()))
	}
}
