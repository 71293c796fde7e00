package main

import "strings"

const patchType = "application/merge-patch+json"

// mergePatches describes the bodies of PATCH: null clears a field, or one of a message in it.
func mergePatches(doc object) {
	all := asObject(asObject(doc["components"])["schemas"])
	for _, item := range asObject(doc["paths"]) {
		body := asObject(asObject(asObject(asObject(item)["patch"])["requestBody"])["content"])
		if media := asObject(body[jsonType]); media != nil {
			media["schema"] = patchOf(asObject(media["schema"]), all)
			body[patchType] = clone(media)
		}
	}
}

// patchOf returns the schema of a merge patch of an object: each of its fields, or null.
func patchOf(schema, all object) object {
	out := asObject(clone(schema))
	for name, property := range asObject(out["properties"]) {
		property := asObject(property)
		ref, _ := property["$ref"].(string)
		message := strings.TrimSuffix(strings.TrimPrefix(ref, schemas), inputSuffix)
		inner := asObject(all[strings.TrimPrefix(ref, schemas)])
		if values := asObject(property["additionalProperties"]); values != nil {
			orNull(values)
		}
		if asObject(inner["properties"]) != nil && property["readOnly"] != true {
			patch := asObject(clone(inner))
			for _, field := range asObject(patch["properties"]) {
				orNull(asObject(field))
			}
			all[message+"Patch"] = patch
			property = object{"description": property["description"],
				"anyOf": []any{object{"$ref": schemas + message + "Patch"}, object{"type": "null"}}}
			asObject(out["properties"])[name] = property
			continue
		}
		orNull(property)
	}
	return out
}

// orNull lets a value of a simple type be null.
func orNull(schema object) {
	if kind, ok := schema["type"].(string); ok {
		schema["type"] = []any{kind, "null"}
	}
}
