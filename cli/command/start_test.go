package command

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
)

// TestAMachineMayBeCalledLikeAnOperation: a machine "op-1" is explained and watched too.
func TestAMachineMayBeCalledLikeAnOperation(t *testing.T) {
	refusal := func(r pb.Reason) error {
		st, err := status.New(codes.NotFound, "none").WithDetails(&errdetails.ErrorInfo{Reason: r.String(),
			Domain: "ingot.dev"})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	none := refusal(pb.Reason_OPERATION_NOT_FOUND)
	if !NotOperation(none, "op-1") || NotOperation(none, ids.New(ids.Operation)) || NotOperation(nil, "op-1") ||
		NotOperation(refusal(pb.Reason_MACHINE_NOT_FOUND), "op-1") {
		t.Error("what is no operation may be a machine, and only that")
	}
}
