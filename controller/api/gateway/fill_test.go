package gateway_test

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// filler fills messages with values that differ from each other and from the defaults.
type filler struct {
	// variant picks the member of every oneof, and the value of every enum.
	variant int
	n       int
}

func (f *filler) message(m protoreflect.Message) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		f.n++
		proto.Merge(v, &timestamppb.Timestamp{Seconds: 1_700_000_000 + int64(f.n), Nanos: 120_000_001})
		return
	case *durationpb.Duration:
		f.n++
		proto.Merge(v, &durationpb.Duration{Seconds: int64(f.n), Nanos: 5_000_000})
		return
	case *fieldmaskpb.FieldMask:
		v.Paths = []string{"plan_id", "group"}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); f.chosen(fd) {
			f.field(m, fd)
		}
	}
}

// chosen reports whether the variant fills the field: of a oneof it fills one.
func (f *filler) chosen(fd protoreflect.FieldDescriptor) bool {
	oneof := fd.ContainingOneof()
	return oneof == nil || oneof.Fields().Get(f.variant%oneof.Fields().Len()) == fd
}

func (f *filler) field(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range 2 {
			key := f.scalar(fd.MapKey()).MapKey()
			value := entries.NewValue()
			entries.Set(key, f.into(fd.MapValue(), value))
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range 2 {
			list.Append(f.into(fd, list.NewElement()))
		}
	case fd.Message() != nil:
		f.message(m.Mutable(fd).Message())
	default:
		m.Set(fd, f.scalar(fd))
	}
}

func (f *filler) into(fd protoreflect.FieldDescriptor, empty protoreflect.Value) protoreflect.Value {
	if fd.Message() == nil {
		return f.scalar(fd)
	}
	f.message(empty.Message())
	return empty
}

func (f *filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	f.n++
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf(`%s-%d "ü" a/b%%2F c+d&e=?#<>`, fd.Name(), f.n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 0xff, '<', byte(f.n)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + (f.variant+f.n)%(values.Len()-1)).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(math.MinInt32 + int32(f.n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(math.MaxInt64 - int64(f.n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(math.MaxUint32 - uint32(f.n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(math.MaxUint64 - uint64(f.n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.1 * float64(f.n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(0.1 * float32(f.n))
	}
	panic("no value for a " + fd.Kind().String())
}

// filled makes a message of a type with every field set.
func filled(d protoreflect.MessageDescriptor, variant int) proto.Message {
	m := newMessage(d)
	f := &filler{variant: variant}
	f.message(m.ProtoReflect())
	return m
}

// variants is how many messages it takes until every member of every oneof, and every value of every enum, was set.
func variants(d protoreflect.MessageDescriptor) int {
	n := 1
	for _, sub := range reachable(d, map[protoreflect.FullName]protoreflect.MessageDescriptor{}) {
		for i := range sub.Oneofs().Len() {
			n = max(n, sub.Oneofs().Get(i).Fields().Len())
		}
		for i := range sub.Fields().Len() {
			if e := sub.Fields().Get(i).Enum(); e != nil {
				n = max(n, e.Values().Len()-1)
			}
		}
	}
	return n
}

func reachable(
	d protoreflect.MessageDescriptor, known map[protoreflect.FullName]protoreflect.MessageDescriptor,
) map[protoreflect.FullName]protoreflect.MessageDescriptor {
	if _, ok := known[d.FullName()]; ok {
		return known
	}
	known[d.FullName()] = d
	for i := range d.Fields().Len() {
		if sub := d.Fields().Get(i).Message(); sub != nil {
			reachable(sub, known)
		}
	}
	return known
}
