package executor

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// Harm is the worst that an action may do to its machine.
type Harm int

// The harms, the worst first: a declaration without one destroys.
const (
	// Destroys: data may be lost.
	Destroys Harm = iota
	// Interrupts: the machine may leave service; its data stay.
	Interrupts
	// Changes: the machine stays in service, and differs afterwards.
	Changes
	// Harmless: the action reads, and changes nothing.
	Harmless
)

// NeedsGrant reports whether a command that may do such harm must not start without a grant.
func (h Harm) NeedsGrant() bool { return h != Harmless }

// Declaration is what an executor's package declares of the action that it carries out.
type Declaration struct {
	// Action is the field of CommandSpec.action.
	Action protoreflect.Name
	Harm   Harm
}

var actions = (&fleetv1.CommandSpec{}).ProtoReflect().Descriptor().Oneofs().ByName("action")

// ActionOf returns the field of CommandSpec.action that a command has set; empty where it has none.
func ActionOf(spec *fleetv1.CommandSpec) protoreflect.Name {
	if field := spec.ProtoReflect().WhichOneof(actions); field != nil {
		return field.Name()
	}
	return ""
}
