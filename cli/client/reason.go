package client

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
)

// Reason is the closed reason that an error carries; REASON_UNSPECIFIED when it carries none, or one that
// this client is too old to know.
func Reason(err error) pb.Reason { return apiclient.Reason(err) }

// Info is the error's google.rpc.ErrorInfo, nil when it has none.
func Info(err error) *errdetails.ErrorInfo { return apiclient.Info(err) }

// Violations are the fields that the server finds fault with.
func Violations(err error) []*errdetails.BadRequest_FieldViolation { return apiclient.Violations(err) }

// Transient says whether an error speaks of the connection or the moment rather than of the request.
func Transient(err error) bool { return apiclient.Transient(err) }

// Repeatable says whether a call of the method may be sent again when its answer was lost. The one call of the others
// that makes something anew (a secret of a webhook) carries Once.
func Repeatable(method string) bool { return apiclient.Repeatable(method) }

// Backoff grows from a quarter of a second to five, with jitter.
type Backoff = apiclient.Backoff
