package testkit

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// mostNesting bounds how deep EachText follows messages that hold messages.
const mostNesting = 5

// EachText returns one message for every string field of a type, nested ones included: only that field is set, to text.
// at is the field's path.
func EachText(d protoreflect.MessageDescriptor, text string) map[string]proto.Message {
	out := map[string]proto.Message{}
	for at, m := range eachText(d, text, 0) {
		out[at] = m.Interface()
	}
	return out
}

func eachText(d protoreflect.MessageDescriptor, text string, depth int) map[string]protoreflect.Message {
	out := map[string]protoreflect.Message{}
	if depth > mostNesting {
		return out
	}
	value := protoreflect.ValueOfString(text)
	fields := d.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		put := func(suffix string, set func(m protoreflect.Message)) {
			m := dynamicpb.NewMessage(d)
			set(m)
			out[string(f.Name())+suffix] = m
		}
		switch {
		case f.IsMap():
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() == protoreflect.StringKind {
				key := protoreflect.ValueOfString("k").MapKey()
				put("[key]", func(m protoreflect.Message) { m.Mutable(f).Map().Set(value.MapKey(), value) })
				put("[k]", func(m protoreflect.Message) { m.Mutable(f).Map().Set(key, value) })
			}
		case f.Message() != nil:
			for at, inner := range eachText(f.Message(), text, depth+1) {
				put("."+at, func(m protoreflect.Message) {
					if f.IsList() {
						m.Mutable(f).List().Append(protoreflect.ValueOfMessage(inner))
					} else {
						m.Set(f, protoreflect.ValueOfMessage(inner))
					}
				})
			}
		case f.Kind() == protoreflect.StringKind && f.IsList():
			put("", func(m protoreflect.Message) { m.Mutable(f).List().Append(value) })
		case f.Kind() == protoreflect.StringKind:
			put("", func(m protoreflect.Message) { m.Set(f, value) })
		}
	}
	return out
}
