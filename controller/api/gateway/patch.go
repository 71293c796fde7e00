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
	var patch map[string]json.RawMessage
	if json.Unmarshal(raw, &patch) != nil || patch == nil {
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
		var inner map[string]json.RawMessage
		switch {
		case string(value) == "null":
			delete(patch, key)
			paths = append(paths, path)
			continue
		case f.Message() == nil || f.IsList() || json.Unmarshal(value, &inner) != nil || strings.Count(path, ".") >= 1:
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
