package client

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Reason is the closed reason that an error carries; REASON_UNSPECIFIED when it carries none, or one that
// this client is too old to know.
func Reason(err error) pb.Reason {
	return pb.Reason(pb.Reason_value[Info(err).GetReason()])
}

// Info is the error's google.rpc.ErrorInfo, nil when it has none.
func Info(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// Violations are the fields that the server finds fault with.
func Violations(err error) []*errdetails.BadRequest_FieldViolation {
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()
		}
	}
	return nil
}
