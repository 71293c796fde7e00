package fieldmask

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func stored() *pb.Machine {
	return &pb.Machine{
		MachineId: "m-1", Labels: map[string]string{"env": "prod", "example.com/row": "7"},
		Spec: &pb.MachineSpec{SshEndpoint: "10.0.0.1:22", Rack: "r1",
			MacAddresses: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}},
	}
}

func TestWhatAMessageDoesNotSetStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   *pb.Machine
		want func(*pb.Machine)
	}{
		"nothing": {&pb.Machine{}, func(*pb.Machine) {}},
		"empty parts": {&pb.Machine{Labels: map[string]string{}, Spec: &pb.MachineSpec{MacAddresses: []string{}}},
			func(*pb.Machine) {}},
		"labels alone": {&pb.Machine{Labels: map[string]string{"tier": "a"}}, func(m *pb.Machine) {
			m.Labels = map[string]string{"tier": "a"}
		}},
		"one field": {&pb.Machine{Spec: &pb.MachineSpec{Rack: "r2"}}, func(m *pb.Machine) { m.Spec.Rack = "r2" }},
		"a list": {&pb.Machine{Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:09"}}}, func(m *pb.Machine) {
			m.Spec.MacAddresses = []string{"52:54:00:00:00:09"}
		}},
	} {
		check(t, name, c.in, nil, c.want)
	}
}

func TestAMaskSetsAndClearsWhatItNames(t *testing.T) {
	t.Parallel()
	in := &pb.Machine{Labels: map[string]string{"env": "dev"}, Spec: &pb.MachineSpec{Rack: "r9"},
		Status: &pb.MachineStatus{BootId: "b"}}
	for mask, want := range map[string]func(*pb.Machine){
		"labels":                 func(m *pb.Machine) { m.Labels = map[string]string{"env": "dev"} },
		"labels.env":             func(m *pb.Machine) { m.Labels["env"] = "dev" },
		"labels.example.com/row": func(m *pb.Machine) { delete(m.Labels, "example.com/row") },
		"labels.tier":            func(*pb.Machine) {},
		"spec":                   func(m *pb.Machine) { m.Spec = &pb.MachineSpec{Rack: "r9"} },
		"spec.rack":              func(m *pb.Machine) { m.Spec.Rack = "r9" },
		"spec.ssh_endpoint":      func(m *pb.Machine) { m.Spec.SshEndpoint = "" },
		"spec.mac_addresses":     func(m *pb.Machine) { m.Spec.MacAddresses = nil },
		"*": func(m *pb.Machine) {
			m.Labels, m.Spec = map[string]string{"env": "dev"},
				&pb.MachineSpec{Rack: "r9"}
		},
		"status":         func(*pb.Machine) {},
		"status.boot_id": func(*pb.Machine) {},
		"machine_id":     func(*pb.Machine) {},
	} {
		if f := Check([]string{mask}, func(string) bool { return true }); f != nil {
			t.Errorf("%s: %v", mask, f)
		}
		check(t, mask, in, []string{mask}, want)
	}
}

func check(t *testing.T, name string, in *pb.Machine, mask []string, change func(*pb.Machine)) {
	t.Helper()
	old, before, want := stored(), proto.Clone(in), stored()
	change(want)
	got := Apply(old, in, mask)
	if !proto.Equal(&pb.Machine{Labels: got.GetLabels(), Spec: got.GetSpec()},
		&pb.Machine{Labels: want.GetLabels(), Spec: want.GetSpec()}) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
	if !proto.Equal(old, stored()) || !proto.Equal(in, before) {
		t.Errorf("%s: the inputs were changed", name)
	}
}

// TestEverySpecFieldCanBeClearedAlone goes through the descriptor, so that a new field is not forgotten.
func TestEverySpecFieldCanBeClearedAlone(t *testing.T) {
	t.Parallel()
	full := &pb.MachineSpec{}
	fields := full.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsList() {
			full.ProtoReflect().Mutable(f).List().Append(protoreflect.ValueOfString("x"))
			continue
		}
		full.ProtoReflect().Set(f, protoreflect.ValueOfString("x"))
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		got := Apply(&pb.Machine{Spec: full}, &pb.Machine{}, []string{"spec." + string(f.Name())}).GetSpec()
		want := proto.Clone(full)
		want.ProtoReflect().Clear(f)
		if !proto.Equal(got, want) {
			t.Errorf("clearing %s gave %v", f.Name(), got)
		}
	}
}

func TestUnknownPathsAreNamed(t *testing.T) {
	t.Parallel()
	isLabel := func(s string) bool { return s == "good" }
	for _, path := range []string{"", ".", "spec.", "spec.nope", "spec.rack.x", "spec.mac_addresses.0", "nope", "labels.",
		"labels.bad", "Spec", "status.nope"} {
		if f := Check([]string{"spec.rack", path}, isLabel); f == nil || f.Path != path || f.Why == "" {
			t.Errorf("%q: %s", path, fmt.Sprint(f))
		}
	}
}
