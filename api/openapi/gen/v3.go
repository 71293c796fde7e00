package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	jsonType    = "application/json"
	streamType  = "application/x-ndjson"
	definitions = "#/definitions/"
	schemas     = "#/components/schemas/"
	errorSchema = "google.rpc.Status"
)

// toV3 turns the OpenAPI 2.0 that the generator makes into OpenAPI 3.1. It knows what that generator writes, and
// nothing more; unlike general converters it keeps the descriptions that stand beside a $ref.
func toV3(doc object) (object, error) {
	paths := object{}
	for path, item := range asObject(doc["paths"]) {
		methods := object{}
		for method, described := range asObject(item) {
			op, err := operationV3(asObject(described))
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			methods[method] = op
		}
		paths[path] = methods
	}
	components := object{}
	for name, schema := range asObject(doc["definitions"]) {
		components[name] = schemaV3(schema)
	}
	info := asObject(doc["info"])
	info["license"] = object{"name": "Apache License 2.0", "identifier": "Apache-2.0"}
	return object{
		"openapi": "3.1.0", "info": info, "servers": []any{object{"url": "/"}}, "tags": doc["tags"],
		"security": []any{object{"bearer": []any{}}}, "paths": paths,
		"components": object{"schemas": components, "securitySchemes": object{"bearer": object{
			"type": "http", "scheme": "bearer",
			"description": "A token of the controller's, or of a person who has signed on.",
		}}},
	}, nil
}

func operationV3(two object) (object, error) {
	op := object{"operationId": two["operationId"], "tags": two["tags"]}
	text, _ := two["summary"].(string)
	if more, _ := two["description"].(string); more != "" {
		text += "\n\n" + more
	}
	op["summary"] = text
	if summary, rest := firstSentence(text); rest != "" {
		op["summary"], op["description"] = summary, rest
	}
	list, _ := two["parameters"].([]any)
	var parameters []any
	for _, p := range list {
		p := asObject(p)
		if p["in"] != "body" {
			three, err := parameterV3(p)
			if err != nil {
				return nil, err
			}
			parameters = append(parameters, three)
			continue
		}
		op["requestBody"] = object{"required": p["required"] == true, "content": content(jsonType, p["schema"]),
			bodyField: p["name"]}
		if text, ok := p["description"].(string); ok {
			asObject(op["requestBody"])["description"] = text
		}
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	responses := object{}
	for code, response := range asObject(two["responses"]) {
		kind := jsonType
		if produces, ok := two["produces"].([]string); ok && code == "200" {
			kind = produces[0]
		}
		r := asObject(response)
		responses[code] = object{"description": r["description"], "content": content(kind, r["schema"])}
	}
	op["responses"] = responses
	return op, nil
}

func content(kind string, schema any) object { return object{kind: object{"schema": schemaV3(schema)}} }

// parameterV3 moves what describes the value into a schema.
func parameterV3(two object) (object, error) {
	p, schema := object{}, object{}
	for key, v := range two {
		switch key {
		case "name", "in", "description", "required":
			p[key] = v
		case "type", "format", "items", "enum", "default", "pattern":
			schema[key] = v
		case "collectionFormat":
			if v != "multi" {
				return nil, fmt.Errorf("parameter %v has the collection format %v", two["name"], v)
			}
			p["style"], p["explode"] = "form", true
		default:
			return nil, fmt.Errorf("parameter %v says %s", two["name"], key)
		}
	}
	p["schema"] = schemaV3(schema)
	return p, nil
}

// schemaV3 makes a JSON Schema of 2020-12 out of a schema of OpenAPI 2.0.
func schemaV3(v any) any {
	switch v := v.(type) {
	case []any:
		for i, child := range v {
			v[i] = schemaV3(child)
		}
	case object:
		for key, child := range v {
			v[key] = schemaV3(child)
		}
		if ref, ok := v["$ref"].(string); ok {
			v["$ref"] = strings.Replace(ref, definitions, schemas, 1)
			delete(v, "type") // the generator calls every reference an object, enums too
		}
		if v["format"] == "byte" {
			delete(v, "format")
			v["contentEncoding"] = "base64"
		}
		if v["x-nullable"] == true {
			delete(v, "x-nullable")
			v["type"] = []any{v["type"], "null"}
		}
	}
	return v
}

// firstSentence parts a text behind its first sentence, which ends where a space or a line break follows a full stop,
// and then a capital.
func firstSentence(text string) (first, rest string) {
	text = strings.TrimSpace(text)
	for i := range text {
		if text[i] != '.' || i+2 >= len(text) || !slices.Contains([]byte(" \n"), text[i+1]) {
			continue
		}
		if next := strings.TrimLeft(text[i+1:], " \n"); next != "" && next[0] >= 'A' && next[0] <= 'Z' {
			return text[:i+1], next
		}
	}
	return text, ""
}
