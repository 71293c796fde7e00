package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// long are calls that take as long as their bytes do.
var long = map[string]time.Duration{baremetalv1.AdminService_AddImage_FullMethodName: 6 * time.Hour}

// caller bounds unary calls in time, and lets a stream that is refused at once fail like a unary call.
type caller struct {
	grpc.ClientConnInterface
	timeout time.Duration
}

func (c caller) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if err := expect(ctx, args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.timeout, long[method]))
	defer cancel()
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c caller) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &stream{ClientStream: s}, nil
}

// stream returns in Header why there is none. gRPC returns that with the first message, when the head of an HTTP answer
// with 200 would have been sent.
type stream struct {
	grpc.ClientStream
	ended error
}

func (s *stream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil || md != nil {
		return md, err
	}
	// Without a header there is no message either.
	if s.ended = s.ClientStream.RecvMsg(&emptypb.Empty{}); errors.Is(s.ended, io.EOF) {
		return nil, nil
	}
	return nil, s.ended
}

func (s *stream) RecvMsg(m any) error {
	if s.ended != nil {
		return s.ended
	}
	return s.ClientStream.RecvMsg(m)
}

// writer bounds the time of each write to a client, and forgets attempts to write a second head.
type writer struct {
	http.ResponseWriter
	patience time.Duration
	begun    bool
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if !w.begun {
		w.begun = true
		w.wait()
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.begun = true
	w.wait()
	return w.ResponseWriter.Write(b)
}

func (w *writer) wait() {
	// Where a deadline cannot be set, as in tests without a connection, no client can be slow.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience))
}
