package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// textCheck looks at the strings of each message that a listener receives, before a handler does.
type textCheck func(method string, m proto.Message) error

// textsOf returns the check of a listener. Strings of agents and installers are cleaned, those of clients are refused
// where they are unsafe. Reports of nodes repeat what installers print: they are cleaned, and refused for NUL alone.
func textsOf(l auth.Listener) textCheck {
	if l != auth.Frontpage {
		return func(_ string, m proto.Message) error {
			safetext.Message(m)
			return nil
		}
	}
	table := auth.Table()
	return func(method string, m proto.Message) error {
		if table[method].Need == auth.NeedReport {
			return validate.ReportedTexts(m)
		}
		return validate.Texts(m)
	}
}

func (check textCheck) unary(
	ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if m, ok := r.(proto.Message); ok {
		if err := check(info.FullMethod, m); err != nil {
			return nil, err
		}
	}
	return next(ctx, r)
}

func (check textCheck) stream(
	srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	return next(srv, &checkedStream{s, info.FullMethod, check})
}

type checkedStream struct {
	grpc.ServerStream
	method string
	check  textCheck
}

// RecvMsg receives a message and checks its strings.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if p, ok := m.(proto.Message); ok {
		return s.check(s.method, p)
	}
	return nil
}
