package failure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/internal/failure"
)

const secretToken = "ingotb_abcdefghijklmnopqrstuvwxyz"

// call runs handler behind both interceptors and returns their answers and the log.
func call(ctx context.Context, handler func(context.Context) error) (unary, stream error, log string) {
	var buf bytes.Buffer
	in := failure.Interceptor{Logger: slog.New(slog.NewTextHandler(&buf, nil))}
	_, unary = in.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/x.Y/Z"},
		func(ctx context.Context, _ any) (any, error) { return "answer", handler(ctx) })
	stream = in.Stream()(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/x.Y/Z"},
		func(_ any, ss grpc.ServerStream) error { return handler(ss.Context()) })
	return unary, stream, buf.String()
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

func TestInterceptorCodes(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancelLate := context.WithTimeout(context.Background(), 0)
	defer cancelLate()
	cases := []struct {
		name string
		ctx  context.Context
		err  error
		want codes.Code
	}{
		{"success", context.Background(), nil, codes.OK},
		{"failure", context.Background(), fmt.Errorf("get: %w", failure.NotFound("MACHINE_NOT_FOUND", "gone")),
			codes.NotFound},
		{"plain status", context.Background(), status.Error(codes.Aborted, "x"), codes.Aborted},
		{"unknown", context.Background(), errors.New("boom"), codes.Internal},
		{"unknown after cancel", ended, errors.New("write: broken pipe"), codes.Canceled},
		{"unknown after deadline", late, errors.New("query canceled"), codes.DeadlineExceeded},
		{"failure after cancel", ended, failure.NotFound("MACHINE_NOT_FOUND", "gone"), codes.NotFound},
	}
	for _, c := range cases {
		unary, stream, _ := call(c.ctx, func(context.Context) error { return c.err })
		if status.Code(unary) != c.want || status.Code(stream) != c.want {
			t.Errorf("%s: unary %v, stream %v, want %v", c.name, unary, stream, c.want)
		}
	}
}

func TestPanicBecomesAnIncident(t *testing.T) {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+secretToken))
	unary, stream, log := call(ctx, func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		panic(fmt.Sprintf("unexpected %v", md))
	})
	for _, err := range []error{unary, stream} {
		id := failure.From(err).Metadata["incident_id"]
		if status.Code(err) != codes.Internal || id == "" || !strings.Contains(log, id) {
			t.Errorf("%v with incident %q; log:\n%s", err, id, log)
		}
		if strings.Contains(err.Error(), "unexpected") {
			t.Errorf("the client sees the panic: %v", err)
		}
	}
	if !strings.Contains(log, "interceptor_test.go") {
		t.Error("no stack in the log")
	}
	if strings.Contains(log, secretToken) {
		t.Errorf("the token is in the log:\n%s", log)
	}
}

func TestInternalErrorsAreLoggedOnceWithTheirCause(t *testing.T) {
	unary, _, log := call(context.Background(), func(context.Context) error {
		return failure.Internal("INTERNAL", "the ledger is inconsistent").Wrap(errors.New("row 7 has two owners"))
	})
	if strings.Count(log, "row 7 has two owners") != 2 { // once for each of the two calls
		t.Errorf("log:\n%s", log)
	}
	if m := status.Convert(unary).Message(); !strings.HasPrefix(m, "the ledger is inconsistent, incident ") {
		t.Errorf("message %q", m)
	}
}

func TestExpectedFailuresAreNotLoggedHere(t *testing.T) {
	if _, _, log := call(context.Background(), func(context.Context) error { return everyKind[0].err }); log != "" {
		t.Errorf("log: %s", log)
	}
}
