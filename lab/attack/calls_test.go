package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/lab/harness"
)

// described finds a method of the API by the full name that auth.Table has, such as
// "/baremetal.v1.AdminService/GetSite".
func described(method string) (protoreflect.MethodDescriptor, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no method", method)
	}
	return m, nil
}

func newMessage(d protoreflect.MessageDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.FullName(), err)
	}
	return t.New().Interface(), nil
}

// call makes a call by the method's full name, and hands its answers to the last argument: one, or those that a stream
// has until it ends or ctx does.
func call(
	ctx context.Context, c *harness.Client, method string, request proto.Message, answer func(proto.Message),
) error {
	d, err := described(method)
	if err != nil {
		return err
	}
	stream, err := c.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: d.IsStreamingClient()},
		method)
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		out, err := newMessage(d.Output())
		if err != nil {
			return err
		}
		switch err := stream.RecvMsg(out); {
		case errors.Is(err, io.EOF), ctx.Err() != nil && d.IsStreamingServer():
			return nil
		case err != nil:
			return err
		}
		answer(out)
	}
}

// request reads the request of a method from JSON.
func request(method, text string) (proto.Message, error) {
	d, err := described(method)
	if err != nil {
		return nil, err
	}
	in, err := newMessage(d.Input())
	if err != nil {
		return nil, err
	}
	return in, protojson.Unmarshal([]byte(text), in)
}

// filled is the request of a method with the values of fields that are named so.
func filled(method string, values map[string]string) (proto.Message, error) {
	d, err := described(method)
	if err != nil {
		return nil, err
	}
	in, err := newMessage(d.Input())
	if err != nil {
		return nil, err
	}
	fields := d.Input().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if v, ok := values[string(f.Name())]; ok && f.Kind() == protoreflect.StringKind && !f.IsList() {
			in.ProtoReflect().Set(f, protoreflect.ValueOfString(v))
		}
	}
	return in, nil
}

// methodsOf are the methods of our API on the frontpage whose need is one of these, in no order.
func methodsOf(needs ...auth.Need) []string {
	var out []string
	for m, rule := range auth.Table() {
		for _, n := range needs {
			if rule.Listener == auth.Frontpage && rule.Need == n && strings.HasPrefix(m, "/baremetal.v1.") {
				out = append(out, m)
			}
		}
	}
	return out
}
