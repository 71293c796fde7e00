package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// answers hides secrets in the answers of the frontpage, which gRPC, REST and the console share.
type answers struct {
	// scripts are the messages that can hold a script's arguments, at any depth.
	scripts map[protoreflect.FullName]bool
}

func newAnswers() answers {
	a := answers{scripts: map[protoreflect.FullName]bool{}}
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			a.reaches(f.Messages().Get(i), map[protoreflect.FullName]bool{})
		}
		return true
	})
	return a
}

// reaches reports whether a message can hold a script's arguments, and notes it. under are the messages above it.
func (a answers) reaches(d protoreflect.MessageDescriptor, under map[protoreflect.FullName]bool) bool {
	name := d.FullName()
	if name == (&baremetalv1.SshCommand{}).ProtoReflect().Descriptor().FullName() || a.scripts[name] {
		a.scripts[name] = true
		return true
	}
	if under[name] {
		return false
	}
	under[name] = true
	defer delete(under, name)
	found := false
	for i := range d.Fields().Len() {
		if m := d.Fields().Get(i).Message(); m != nil && a.reaches(m, under) {
			found = true
		}
	}
	if found {
		a.scripts[name] = true
	}
	return found
}

// hidden returns an answer without secrets. One that can hold none is returned as it is; any other is copied, since
// plans are shared.
func (a answers) hidden(m any) any {
	p, ok := m.(proto.Message)
	if !ok || !a.scripts[p.ProtoReflect().Descriptor().FullName()] {
		return m
	}
	out := proto.Clone(p)
	a.hide(out.ProtoReflect())
	return out
}

func (a answers) hide(m protoreflect.Message) {
	if s, ok := m.Interface().(*baremetalv1.SshCommand); ok {
		kind.HideSecretArgs(s)
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		of := f.Message()
		if f.IsMap() {
			of = f.MapValue().Message()
		}
		switch {
		case of == nil || !a.scripts[of.FullName()]:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				a.hide(v.Message())
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				a.hide(v.List().Get(i).Message())
			}
		default:
			a.hide(v.Message())
		}
		return true
	})
}

func (a answers) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, r)
	if err != nil {
		return resp, err
	}
	return a.hidden(resp), nil
}

func (a answers) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &hiddenStream{s, a})
}

type hiddenStream struct {
	grpc.ServerStream
	answers answers
}

// SendMsg sends a message without secrets.
func (s *hiddenStream) SendMsg(m any) error { return s.ServerStream.SendMsg(s.answers.hidden(m)) }
