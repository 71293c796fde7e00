package kind

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Inputs fill what a plan leaves open.
type Inputs struct {
	ImageRef      string
	RebootMode    string
	NetbootMode   string
	InstallerPath string
	// Agentless reports whether the system that is written gets no agent.
	Agentless bool
	// MachinePath is the machine's own path into the installer, for requests and plans that name none.
	MachinePath string
	// ClusterRef is the cluster that the machine is meant for.
	ClusterRef     string
	TimeoutSeconds int32
	// ProviderImage is the image that a provider deploys, under the provider's name for it. Of ImageRef it is only what
	// was asked for, or the machine's own.
	ProviderImage string
	Config        *baremetalv1.NetReconfig
	// Test selects the tests of the hardware and their time, as far as the plan leaves them open.
	Test *baremetalv1.TestHardware
}

// OfStep returns the kind of a step; empty where none is set.
func OfStep(s *baremetalv1.Step) Kind {
	m := s.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if f == nil {
		return ""
	}
	return Kind(f.Name())
}

// Text returns a text field of the message that a step has for its kind; empty where the message has no such field.
func Text(s *baremetalv1.Step, field string) string {
	m := s.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if f == nil {
		return ""
	}
	body := m.Get(f).Message()
	if f = body.Descriptor().Fields().ByName(protoreflect.Name(field)); f == nil || f.Kind() != protoreflect.StringKind {
		return ""
	}
	return body.Get(f).String()
}

// ModeOf returns the mode of a step.
func ModeOf(s *baremetalv1.Step) string { return Text(s, Of(OfStep(s)).Mode) }

// NewStep returns a step of a declared kind in a mode; an empty mode is left open.
func NewStep(k Kind, name, mode string) *baremetalv1.Step {
	s := &baremetalv1.Step{Name: name}
	m := s.ProtoReflect()
	f := m.Descriptor().Fields().ByName(protoreflect.Name(k))
	body := m.NewField(f)
	if d := Of(k); d.Mode != "" && mode != "" {
		in := body.Message()
		in.Set(in.Descriptor().Fields().ByName(protoreflect.Name(d.Mode)), protoreflect.ValueOfString(mode))
	}
	m.Set(f, body)
	return s
}

// Check refuses a step that a plan cannot have; path is the step's field in the request.
func Check(s *baremetalv1.Step, path string) error {
	d := Of(OfStep(s))
	path += "." + string(d.Kind)
	if d.Modes != nil {
		if err := oneOf(path+"."+d.Mode, ModeOf(s), d.Modes); err != nil {
			return err
		}
	}
	if d.Check == nil {
		return nil
	}
	return d.Check(s, path)
}

// Fill completes a step by what was asked for, and by what holds for its machine.
func Fill(s *baremetalv1.Step, in Inputs) error {
	if d := Of(OfStep(s)); d.Fill != nil {
		return d.Fill(s, in)
	}
	return nil
}

// HarmOf returns the harm of a step by its fields.
func HarmOf(s *baremetalv1.Step) Harm {
	d := Of(OfStep(s))
	if d.HarmOf != nil {
		return d.HarmOf(s)
	}
	return d.Harm
}

// Invalid returns the refusal of a field.
func Invalid(reason, field, description string) error {
	return failure.Invalid(reason, "%s: %s", field, description).WithField(field, description)
}

// oneOf refuses a value that is neither empty nor one of those allowed.
func oneOf(field, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return Invalid("INVALID_FIELD", field, fmt.Sprintf("%q is none of %q", value, allowed))
}

// InstallerPaths are the paths into the installer that a step may name.
var InstallerPaths = []string{"auto", PathKexec, PathBootNext, PathBMC, "media"}
