package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

const maskField = "update_mask"

// mergePatch turns the body of a PATCH of a machine, a JSON Merge Patch (RFC 7396), into the machine and the mask that
// UpdateMachine takes: what the body names becomes what it has there, and null clears it. A mask in the query goes
// before what the body names.
func mergePatch(r *http.Request, op operation) *failure.Error {
	if !slices.Contains(op.query, maskField) || r.Form.Get(maskField) != "" {
		return nil
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return failure.Invalid(reasonInvalidField, "the body ended early")
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	patch, ok := members(raw)
	if !ok {
		return nil // the decoder refuses it with its own words
	}
	paths := patchPaths((&baremetalv1.Machine{}).ProtoReflect().Descriptor(), "", patch)
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "machine_id" || p == versionField })
	if len(paths) == 0 {
		return nil
	}
	if raw, err = json.Marshal(patch); err != nil {
		return failure.Invalid(reasonInvalidField, "the body cannot be read: %v", err)
	}
	slices.Sort(paths)
	r.Form.Set(maskField, strings.Join(paths, ","))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return nil
}

// members returns the members of a JSON object. ok is false for anything else, and where a member is repeated.
func members(raw []byte) (_ map[string]json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') || !json.Valid(raw) {
		return nil, false
	}
	out := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		key, isText := token.(string)
		var value json.RawMessage
		if err != nil || !isText || d.Decode(&value) != nil {
			return nil, false
		}
		if _, twice := out[key]; twice {
			return nil, false
		}
		out[key] = value
	}
	return out, true
}

// patchPaths returns the paths of a field mask that a merge patch names, and takes the members that are null out of it.
// It leaves what no message has to the decoder, which refuses it by name.
func patchPaths(m protoreflect.MessageDescriptor, prefix string, patch map[string]json.RawMessage) (paths []string) {
	for key, value := range patch {
		f := m.Fields().ByName(protoreflect.Name(key))
		if f == nil {
			f = m.Fields().ByJSONName(key)
		}
		if f == nil {
			continue
		}
		path := prefix + string(f.Name())
		inner, isObject := members(value)
		switch {
		case string(value) == "null":
			delete(patch, key)
			paths = append(paths, path)
			continue
		case f.Message() == nil || f.IsList() || !isObject || strings.Contains(path, "."):
			paths = append(paths, path)
			continue
		case f.IsMap():
			for name, v := range inner {
				paths = append(paths, path+"."+name)
				if string(v) == "null" {
					delete(inner, name)
				}
			}
		default:
			paths = append(paths, patchPaths(f.Message(), path+".", inner)...)
		}
		if raw, err := json.Marshal(inner); err == nil {
			patch[key] = raw
		}
	}
	return paths
}
