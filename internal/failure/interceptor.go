package failure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/obs/redact"
)

// Interceptor is the boundary between our errors and gRPC's. What handlers return becomes a status; a panic and
// every other internal error becomes INTERNAL with an incident id that the log has too. Neither the request nor its
// metadata is ever logged here.
type Interceptor struct {
	// Logger gets the internal errors; slog.Default() when nil.
	Logger *slog.Logger
}

// Unary maps the errors and panics of a unary handler.
func (i Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if err = i.settle(ctx, info.FullMethod, req, recover(), err); err != nil {
				resp = nil
			}
		}()
		return next(ctx, req)
	}
}

// Stream maps the errors and panics of a stream handler.
func (i Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer func() { err = i.settle(ss.Context(), info.FullMethod, nil, recover(), err) }()
		return next(srv, ss)
	}
}

// settle decides what goes out: recovered is the result of recover(), and req is nil for a stream.
func (i Interceptor) settle(ctx context.Context, method string, req, recovered any, err error) error {
	if recovered != nil {
		return i.incident(method, fmt.Errorf("panic: %v", recovered), debug.Stack())
	}
	if err == nil {
		return nil
	}
	e := From(endOfCall(ctx, err))
	if e.Kind == KindInternal {
		return i.incident(method, err, nil)
	}
	return ToStatus(e.ofRequest(req)).Err()
}

// endOfCall prefers "the caller went away" to whatever the work failed with because of it, unless the handler said
// something on purpose.
func endOfCall(ctx context.Context, err error) error {
	var e *Error
	var s interface{ GRPCStatus() *status.Status }
	if ctx.Err() == nil || errors.As(err, &e) || errors.As(err, &s) {
		return err
	}
	return ctx.Err()
}

// incident logs err and returns only an incident number to the client.
func (i Interceptor) incident(method string, err error, stack []byte) error {
	id := ids.New("inc")
	attrs := []any{"incident_id", id, "method", method, "error", redact.String(err.Error())}
	if stack != nil {
		attrs = append(attrs, "stack", redact.String(string(stack)))
	}
	i.logger().Error("internal error in a call", attrs...)
	e := From(err)
	out := &Error{Kind: KindInternal, Reason: ReasonInternal, Message: internalMessage + ", incident " + id}
	if e.Reason != "" && e.Message != internalMessage {
		out.Reason, out.Message = e.Reason, e.Message+", incident "+id
	}
	return ToStatus(out.WithMeta("incident_id", id)).Err()
}

func (i Interceptor) logger() *slog.Logger {
	if i.Logger != nil {
		return i.Logger
	}
	return slog.Default()
}
