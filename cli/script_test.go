package cli

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// events sends the events with a number above the cursor and ends with err.
func events(
	err error, evs ...*pb.OperationEvent,
) func(*pb.WatchOperationsRequest, pb.OperationService_WatchOperationsServer) error {
	return func(_ *pb.WatchOperationsRequest, s pb.OperationService_WatchOperationsServer) error {
		for _, ev := range evs {
			if err := s.Send(ev); err != nil {
				return err
			}
		}
		if err == errHang {
			<-s.Context().Done()
			return s.Context().Err()
		}
		return err
	}
}

// chunks sends the chunks after the one that the reader names, and ends with err.
func chunks(
	err error, all ...*pb.LogChunk,
) func(*pb.StreamOperationLogsRequest, pb.OperationService_StreamOperationLogsServer) error {
	return func(r *pb.StreamOperationLogsRequest, s pb.OperationService_StreamOperationLogsServer) error {
		for _, c := range all {
			if c.GetSeq() <= r.GetAfterSeq() {
				continue
			}
			if err := s.Send(c); err != nil {
				return err
			}
		}
		return err
	}
}

// errHang keeps a stream open until its reader leaves.
var errHang = status.Error(codes.Internal, "hang")

var lostConnection = status.Error(codes.Unavailable, "connection reset")

func refuse(
	code codes.Code, reason pb.Reason, msg string, metadata map[string]string, more ...protoadapt.MessageV1,
) error {
	details := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason.String(), Domain: "ingot.dev",
		Metadata: metadata}}, more...)
	st, err := status.New(code, msg).WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// at is the time that the tests' operations live in, s seconds on.
func at(s int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC))
}
