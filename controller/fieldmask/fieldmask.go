// Package fieldmask applies a client's update of a machine to the stored one, by the rules of field masks (AIP-134). It
// is pure: it reads two messages and makes a third.
package fieldmask

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	all    = "*"
	labels = "labels"
	spec   = "spec"
)

// Fault is a path that a mask may not hold, and why.
type Fault struct{ Path, Why string }

// Check returns the first path that names nothing of a machine; nil when all of them do. isLabel reports whether a
// string can be a label's key.
func Check(paths []string, isLabel func(string) bool) *Fault {
	for _, p := range paths {
		if why := wrong(p, isLabel); why != "" {
			return &Fault{p, why}
		}
	}
	return nil
}

func wrong(path string, isLabel func(string) bool) string {
	if path == all {
		return ""
	}
	if key, ok := strings.CutPrefix(path, labels+"."); ok {
		if !isLabel(key) {
			return "is not labels. and the key of a label"
		}
		return ""
	}
	fields := (&baremetalv1.Machine{}).ProtoReflect().Descriptor().Fields()
	name, rest, nested := strings.Cut(path, ".")
	for {
		f := fields.ByName(protoreflect.Name(name))
		if f == nil {
			return "is no field of a machine"
		}
		if !nested {
			return ""
		}
		if f.Message() == nil || f.IsList() || f.IsMap() {
			return "goes on behind a field that has no fields"
		}
		fields = f.Message().Fields()
		name, rest, nested = strings.Cut(rest, ".")
	}
}

// Apply returns the machine's labels and spec after a client's update. With paths, each gets in's value and is cleared
// where that is empty; paths of fields that are not the client's change nothing. Without paths, fields that in does not
// set stay, and a map or list that is not empty replaces the whole. stored and in are not changed; paths have passed
// Check.
func Apply(stored, in *baremetalv1.Machine, paths []string) *baremetalv1.Machine {
	out := &baremetalv1.Machine{
		MachineId: stored.GetMachineId(), Version: in.GetVersion(), Labels: maps.Clone(stored.GetLabels()),
		Spec: specOf(stored),
	}
	if len(paths) == 0 {
		paths = said(in)
	}
	for _, p := range paths {
		set(out, in, p)
	}
	return out
}

func specOf(m *baremetalv1.Machine) *baremetalv1.MachineSpec {
	out := &baremetalv1.MachineSpec{}
	proto.Merge(out, m.GetSpec())
	return out
}

// said is the mask of what a message sets.
func said(in *baremetalv1.Machine) (paths []string) {
	if len(in.GetLabels()) > 0 {
		paths = append(paths, labels)
	}
	in.GetSpec().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		paths = append(paths, spec+"."+string(f.Name()))
		return true
	})
	return paths
}

func set(out, in *baremetalv1.Machine, path string) {
	head, rest, nested := strings.Cut(path, ".")
	switch {
	case path == all:
		out.Labels, out.Spec = maps.Clone(in.GetLabels()), specOf(in)
	case head == labels && nested:
		setLabel(out, in, rest)
	case head == labels:
		out.Labels = maps.Clone(in.GetLabels())
	case head == spec && nested:
		setSpec(out, specOf(in), protoreflect.Name(rest))
	case head == spec:
		out.Spec = specOf(in)
	}
}

func setLabel(out, in *baremetalv1.Machine, key string) {
	value, ok := in.GetLabels()[key]
	if !ok {
		delete(out.GetLabels(), key)
		return
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[key] = value
}

func setSpec(out *baremetalv1.Machine, from *baremetalv1.MachineSpec, name protoreflect.Name) {
	f := from.ProtoReflect().Descriptor().Fields().ByName(name)
	if from.ProtoReflect().Has(f) {
		out.GetSpec().ProtoReflect().Set(f, from.ProtoReflect().Get(f))
		return
	}
	out.GetSpec().ProtoReflect().Clear(f)
}
