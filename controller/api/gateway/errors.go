package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/internal/failure"
)

// callFailed answers what a call, or a generated handler before it, has failed with.
func (g *Gateway) callFailed(
	ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error,
) {
	var path *runtime.HTTPStatusError // a path with a broken escape
	if errors.As(err, &path) {
		g.refuse(w, path.HTTPStatus, failure.Invalid(reasonInvalidField, "the path cannot be read: %v", path.Err))
		return
	}
	st := typed(status.Convert(err))
	g.answer(w, httpStatus(ctx, st), st)
}

// streamFailed returns the last line of a stream that has begun.
func streamFailed(_ context.Context, err error) *status.Status { return typed(status.Convert(err)) }

// typed adds a reason to the few statuses that come from the gateway or from gRPC itself and have none.
func typed(st *status.Status) *status.Status {
	if len(st.Details()) > 0 {
		return st
	}
	switch st.Code() {
	case codes.InvalidArgument:
		return failure.ToStatus(invalid(st.Message()))
	case codes.Unavailable:
		return failure.ToStatus(failure.Unavailable("CONTROLLER_DRAINING", "the controller is stopping"))
	case codes.ResourceExhausted:
		return failure.ToStatus(failure.Invalid(reasonTooLarge, "%s", st.Message()))
	}
	return st
}

func invalid(text string) *failure.Error {
	faults, ok := decodeFaults(text)
	if !ok {
		return failure.Invalid(reasonInvalidField, "%s", text)
	}
	out := failure.Invalid(reasonInvalidField, "%s", faults.Error())
	for _, f := range faults {
		if f.Path != "" {
			out = out.WithField(f.Path, f.Description)
		}
	}
	return out
}

// refuse answers an error of the Gateway itself.
func (g *Gateway) refuse(w http.ResponseWriter, code int, err *failure.Error) {
	g.answer(w, code, failure.ToStatus(err))
}

func (g *Gateway) answer(w http.ResponseWriter, code int, st *status.Status) {
	raw, err := statusJSON(st.Proto())
	if err != nil {
		g.cfg.Logger.Error("status without a JSON form", "error", err.Error())
		code, raw = http.StatusInternalServerError, []byte(`{"code":13,"message":"internal error","details":[]}`)
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	if code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	if wait, ok := retryAfter(st); ok {
		h.Set("Retry-After", wait)
	}
	w.WriteHeader(code)
	g.write(w, raw)
}

func (g *Gateway) write(w http.ResponseWriter, raw []byte) {
	if _, err := w.Write(raw); err != nil { //nolint:gosec // JSON, by its Content-Type
		g.cfg.Logger.Debug("answer not written", "error", err.Error()) // the client has gone
	}
}

// retryAfter returns RetryInfo in whole seconds, as in HTTP.
func retryAfter(st *status.Status) (string, bool) {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return strconv.Itoa(int(math.Ceil(info.GetRetryDelay().AsDuration().Seconds()))), true
		}
	}
	return "", false
}

// statusJSON writes a google.rpc.Status: {"code", "message", "details"}.
func statusJSON(st proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("write status as JSON: %w", err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, fmt.Errorf("compact JSON: %w", err)
	}
	return b.Bytes(), nil
}
