package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Preview asks whether work would be taken on a machine, and begins none. It returns the refusal of the call itself,
// with its code and Reason. Work that begins by taking a machine out of service is asked so first: a refusal after that
// leaves the machine in maintenance. The filter of spec is not used.
func Preview(
	ctx context.Context, conn grpc.ClientConnInterface, machineID string, spec *baremetalv1.RolloutSpec,
) error {
	spec = proto.CloneOf(spec)
	spec.Filter = "machine_id=" + machineID
	p, err := baremetalv1.NewRolloutServiceClient(conn).PreviewRollout(ctx,
		&baremetalv1.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return fmt.Errorf("preview: %w", err)
	}
	if len(p.GetMachines()) == 0 {
		return refusal(codes.NotFound, baremetalv1.Reason_MACHINE_NOT_FOUND.String(), "there is no machine "+machineID)
	}
	if m := p.GetMachines()[0]; m.GetState() == baremetalv1.RolloutMachine_SKIPPED {
		code := codes.Code(m.GetCode())
		if code == codes.OK {
			code = codes.FailedPrecondition // of a controller that names no code
		}
		return refusal(code, m.GetReason(), m.GetMessage())
	}
	return nil
}

// refusal returns the error of a refused call.
func refusal(code codes.Code, reason, message string) error {
	st, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "ingot.dev"})
	if err != nil {
		return errors.Join(status.Error(code, message), err)
	}
	return st.Err()
}
