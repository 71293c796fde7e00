package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// mostAudited bounds a value of a field in the audit log, in bytes. A longer one is there as its digest.
const mostAudited = 256

// changes returns what an update changes, for the audit log: of each field that differs its value before, under
// "FIELD.from", and after, under "FIELD.to". A field that is not set is empty. Neither labels nor the spec hold
// secrets: credentials are named by their references.
func changes(before, after *baremetalv1.Machine) map[string]string {
	out := map[string]string{}
	note := func(field, from, to string) {
		if from != to {
			out[field+".from"], out[field+".to"] = audited(from), audited(to)
		}
	}
	for key, from := range before.GetLabels() {
		note("labels."+key, from, after.GetLabels()[key])
	}
	for key, to := range after.GetLabels() {
		note("labels."+key, before.GetLabels()[key], to)
	}
	old, wanted := before.GetSpec().ProtoReflect(), after.GetSpec().ProtoReflect()
	fields := wanted.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		note("spec."+string(f.Name()), textOf(old, f), textOf(wanted, f))
	}
	return out
}

// textOf returns a field's value; those of a list with commas between.
func textOf(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if !m.Has(f) {
		return ""
	}
	if !f.IsList() {
		return m.Get(f).String()
	}
	var all []string
	list := m.Get(f).List()
	for i := range list.Len() {
		all = append(all, list.Get(i).String())
	}
	return strings.Join(all, ",")
}

func audited(value string) string {
	if len(value) <= mostAudited {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}
