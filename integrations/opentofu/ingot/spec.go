package ingot

import (
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// specFields are the fields of MachineSpec, so that a new one of the API is one of the resource, too. All are texts or
// lists of texts; a test holds that.
var specFields = fieldsOf((&baremetalv1.MachineSpec{}).ProtoReflect().Descriptor())

func fieldsOf(d protoreflect.MessageDescriptor) (out []protoreflect.FieldDescriptor) {
	for i := range d.Fields().Len() {
		out = append(out, d.Fields().Get(i))
	}
	return out
}

func nameOf(f protoreflect.FieldDescriptor) string { return string(f.Name()) }

// specTypes are the types of the attributes of spec.
func specTypes() map[string]attr.Type {
	out := map[string]attr.Type{}
	for _, f := range specFields {
		if f.IsList() {
			out[nameOf(f)] = types.ListType{ElemType: types.StringType}
		} else {
			out[nameOf(f)] = types.StringType
		}
	}
	return out
}

// specAttributes are those of the resource: what a configuration does not name is the controller's to say.
func specAttributes() map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for _, f := range specFields {
		about := "Field " + nameOf(f) + " of the API's MachineSpec. Left alone where it is not set; "
		if f.IsList() {
			out[nameOf(f)] = schema.ListAttribute{Optional: true, Computed: true, ElementType: types.StringType,
				Description:   about + "[] clears it.",
				PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()}}
		} else {
			out[nameOf(f)] = schema.StringAttribute{Optional: true, Computed: true, Description: about + `"" clears it.`,
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
		}
	}
	return out
}

// specObject is a spec of the API; what it does not set is an empty text or list.
func specObject(s *baremetalv1.MachineSpec) types.Object {
	m, values := s.ProtoReflect(), map[string]attr.Value{}
	for _, f := range specFields {
		if !f.IsList() {
			values[nameOf(f)] = types.StringValue(m.Get(f).String())
			continue
		}
		items := []attr.Value{}
		for i := range m.Get(f).List().Len() {
			items = append(items, types.StringValue(m.Get(f).List().Get(i).String()))
		}
		values[nameOf(f)] = types.ListValueMust(types.StringType, items)
	}
	return types.ObjectValueMust(specTypes(), values)
}

// specMessage returns the API's spec with the values of an object.
func specMessage(o types.Object) *baremetalv1.MachineSpec {
	s := &baremetalv1.MachineSpec{}
	for _, f := range specFields {
		switch v := o.Attributes()[nameOf(f)].(type) {
		case types.String:
			if v.ValueString() != "" {
				s.ProtoReflect().Set(f, protoreflect.ValueOfString(v.ValueString()))
			}
		case types.List:
			for _, text := range texts(v) {
				s.ProtoReflect().Mutable(f).List().Append(protoreflect.ValueOfString(text))
			}
		}
	}
	return s
}

// texts are the elements of a list, none of one that is null or not known.
func texts(l types.List) (out []string) {
	for _, e := range l.Elements() {
		if s, ok := e.(types.String); ok {
			out = append(out, s.ValueString())
		}
	}
	return out
}

// specChanges are the paths of a field mask for what a plan sets otherwise than it is.
func specChanges(planned, is types.Object) (paths []string) {
	for _, f := range specFields {
		if p := planned.Attributes()[nameOf(f)]; said(p) && !same(p, is.Attributes()[nameOf(f)]) {
			paths = append(paths, "spec."+nameOf(f))
		}
	}
	return paths
}

// spelled returns the API's spec, in the spelling of another one where both mean the same.
func spelled(is, as types.Object) types.Object {
	values := is.Attributes()
	for name, v := range as.Attributes() {
		if said(v) && same(v, values[name]) {
			values[name] = v
		}
	}
	return types.ObjectValueMust(specTypes(), values)
}

func said(v attr.Value) bool { return v != nil && !v.IsNull() && !v.IsUnknown() }

// same compares two values of a spec. The API writes MAC addresses in one way and takes them in several.
func same(a, b attr.Value) bool {
	x, ok := a.(types.List)
	y, also := b.(types.List)
	if !ok || !also {
		return a.Equal(b)
	}
	xs, ys := texts(x), texts(y)
	if len(xs) != len(ys) {
		return false
	}
	for i := range xs {
		if plainMAC(xs[i]) != plainMAC(ys[i]) {
			return false
		}
	}
	return true
}

var (
	separators = strings.NewReplacer(":", "", "-", "", ".", "")
	digits     = regexp.MustCompile(`^[0-9a-f]{12}$`)
)

// plainMAC is the digits of a MAC address; another text stays as it is.
func plainMAC(s string) string {
	if mac := separators.Replace(strings.ToLower(s)); digits.MatchString(mac) {
		return mac
	}
	return s
}

func quoted(words []string) string { return `"` + strings.Join(words, `", "`) + `"` }
