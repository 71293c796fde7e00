package command

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// Guarded returns the configuration with an Out and an Err that escape unsafe characters, and the Out that was there.
// Text for people keeps this program's own colours.
func Guarded(c Config) (guarded Config, raw io.Writer) {
	raw = c.Out
	c.Out = safetext.Writer{W: c.Out, Terminal: c.OutTerminal}
	c.Err = safetext.Writer{W: c.Err, Terminal: c.ErrTerminal}
	return c, raw
}

// signed are methods whose answer is a document with a signature: it is kept as it is, and escaped where it is shown.
var signed = map[string]bool{pb.OperationService_GetErasureCertificate_FullMethodName: true}

// cleaned are options of a connection that clean the strings of every answer that is shown to people. Documents for
// programs keep their strings: encode escapes them.
func (a *App) cleaned() []grpc.DialOption {
	clean := func(method string, m any) {
		if p, ok := m.(proto.Message); ok && !a.ForPrograms() && !a.Exact && !signed[method] {
			safetext.Message(p)
		}
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := next(ctx, method, req, reply, conn, opts...)
			if err == nil {
				clean(method, reply)
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn,
			method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := next(ctx, desc, conn, method, opts...)
			if err != nil {
				return nil, err
			}
			return &cleanedStream{s, func(m any) { clean(method, m) }}, nil
		}),
	}
}

// ForPrograms reports whether Out takes a document, or parts of one.
func (a *App) ForPrograms() bool {
	return a.Flags.Output == "json" || a.Flags.Output == "yaml" || a.path != nil
}

type cleanedStream struct {
	grpc.ClientStream
	clean func(m any)
}

// RecvMsg receives a message and cleans its strings.
func (s *cleanedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.clean(m)
	}
	return err
}

// WriteFile writes bytes of a file to Out as they are. A terminal takes them escaped.
func (a *App) WriteFile(content []byte) error {
	out := a.RawOut
	if a.Config.OutTerminal || out == nil {
		out = a.Config.Out
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
