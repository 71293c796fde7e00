package failure

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the domain of every google.rpc.ErrorInfo that Ingot sends.
const Domain = "ingot.dev"

// ToStatus returns the part of err that a client gets: code, message, ErrorInfo (Domain), BadRequest where fields are
// at fault, RetryInfo where trying again helps. Of an error that is no *Error only "internal error" remains. It returns
// nil for nil.
func ToStatus(err error) *status.Status {
	if err == nil {
		return nil
	}
	e := From(err)
	st := status.New(e.Kind.Code(), e.Message)
	details := e.details()
	if len(details) == 0 {
		return st
	}
	withDetails, err := st.WithDetails(details...)
	if err != nil {
		return st // a detail that cannot be marshalled (invalid UTF-8) is better lost than the whole status
	}
	return withDetails
}

func (e *Error) details() []protoadapt.MessageV1 {
	var out []protoadapt.MessageV1
	if e.Reason != "" {
		out = append(out, &errdetails.ErrorInfo{Reason: e.Reason, Domain: Domain, Metadata: e.Metadata})
	}
	if len(e.Fields) > 0 {
		out = append(out, badRequest(e.Fields))
	}
	if e.Retryable && (e.Kind == KindUnavailable || e.Kind == KindExhausted) {
		out = append(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.retryAfter())})
	}
	return out
}

func (e *Error) retryAfter() time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return DefaultRetryAfter
}

func badRequest(fields []Field) *errdetails.BadRequest {
	br := &errdetails.BadRequest{}
	for _, f := range fields {
		br.FieldViolations = append(br.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: f.Path, Description: f.Description})
	}
	return br
}

// fromStatus reads back what ToStatus wrote. A status of another origin has no reason of ours; it keeps its code and
// message. For OK it returns an internal error: a status error with code OK is a bug of its sender.
func fromStatus(st *status.Status) *Error {
	k := kindOfCode(st.Code())
	e := &Error{Kind: k, Message: st.Message(), Retryable: kinds[k].retryable, cause: st.Err()}
	if k == KindInternal {
		e.Reason = ReasonInternal
	}
	for _, d := range st.Details() {
		e.readDetail(d)
	}
	return e
}

func (e *Error) readDetail(d any) {
	switch d := d.(type) {
	case *errdetails.ErrorInfo:
		if d.GetDomain() == Domain {
			e.Reason, e.Metadata = d.GetReason(), d.GetMetadata()
		}
	case *errdetails.BadRequest:
		for _, v := range d.GetFieldViolations() {
			e.Fields = append(e.Fields, Field{Path: v.GetField(), Description: v.GetDescription()})
		}
	case *errdetails.RetryInfo:
		e.Retryable, e.RetryAfter = true, d.GetRetryDelay().AsDuration()
	}
}
