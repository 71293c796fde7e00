package kind_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

func fields(m protoreflect.ProtoMessage, oneof protoreflect.Name) map[string]int {
	out := map[string]int{}
	all := m.ProtoReflect().Descriptor().Oneofs().ByName(oneof).Fields()
	for i := range all.Len() {
		out[string(all.Get(i).Name())] = 0
	}
	return out
}

// TestEveryFieldIsDeclaredOnce walks the oneofs of both protos: each step has one declaration, and each action at least
// one kind that makes it.
func TestEveryFieldIsDeclaredOnce(t *testing.T) {
	t.Parallel()
	steps, actions := fields(&baremetalv1.Step{}, "kind"), fields(&fleetv1.CommandSpec{}, "action")
	seen := map[kind.Kind]bool{}
	for _, d := range kind.All() {
		if seen[d.Kind] {
			t.Errorf("%s is declared twice", d.Kind)
		}
		seen[d.Kind] = true
		if _, isStep := steps[string(d.Kind)]; isStep != d.Step {
			t.Errorf("%s: a field of Step.kind: %t, declared so: %t", d.Kind, isStep, d.Step)
		}
		steps[string(d.Kind)]++
		if _, known := actions[d.Action]; d.Action != "" && !known {
			t.Errorf("%s: CommandSpec.action has no field %q", d.Kind, d.Action)
		}
		actions[d.Action]++
	}
	for name, n := range steps {
		if n != 1 {
			t.Errorf("step %s has %d declarations", name, n)
		}
	}
	for name, n := range actions {
		if n == 0 {
			t.Errorf("no kind makes action %s", name)
		}
	}
}

// TestDeclarationsAreWhole holds what each kind needs by what it is.
func TestDeclarationsAreWhole(t *testing.T) {
	t.Parallel()
	for _, d := range kind.All() {
		got := kind.Of(d.Kind)
		if got.Capability == "" {
			t.Errorf("%s needs no capability", d.Kind)
		}
		if d.Step && d.Timeout <= 0 {
			t.Errorf("steps of kind %s have no limit", d.Kind)
		}
		if d.Runs && (d.Started == "" || d.Done == "") {
			t.Errorf("%s lacks the texts of its events", d.Kind)
		}
		if !d.Step && (d.Runs || d.Action == "" || d.Doing == "") {
			t.Errorf("%s is of commands alone, and is declared as %+v", d.Kind, d)
		}
		// A command counts as done by what was read back, or by the system that it brings up.
		proven := d.Evidence != "" || d.ProvenByBoot || d.Entered != "" || d.Prepares && d.Harm == kind.Harmless
		if !proven && d.Action != "" {
			t.Errorf("nothing proves a command of kind %s", d.Kind)
		}
		if d.Ungranted && d.Harm != kind.Harmless {
			t.Errorf("%s needs no grant, and its harm is %s", d.Kind, d.Harm)
		}
		if d.DestroysSystem && d.Harm != kind.Destroys {
			t.Errorf("%s destroys the system, and its harm is %s", d.Kind, d.Harm)
		}
	}
	if kind.Of("of a newer version").Harm != kind.Destroys {
		t.Error("a kind that is not declared is taken for harmless")
	}
}

// TestLimits holds the limits of the kinds that the API documents.
func TestLimits(t *testing.T) {
	t.Parallel()
	want := map[kind.Kind]int{kind.Netboot: 60, kind.Repave: 1800, kind.Reboot: 300, kind.Join: 600, kind.Verify: 300,
		kind.Net: 120}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got := int(kind.Of(k).Timeout.Seconds()); got != want[k] {
			t.Errorf("%s: %d s, not %d s", k, got, want[k])
		}
	}
}
