// Command gen makes the OpenAPI 3.1 document out of the OpenAPI 2.0 that protoc-gen-openapiv2 makes: it reads that from
// standard input and writes the document to standard output.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

type object = map[string]any

func run(in io.Reader, out io.Writer) error {
	var doc object
	if err := json.NewDecoder(in).Decode(&doc); err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	paths, err := onePathEach(asObject(doc["paths"]))
	if err != nil {
		return err
	}
	doc["paths"] = paths
	streamTypes(paths)
	maintenance(doc)
	nodeHistory(doc)
	if doc, err = toV3(doc); err != nil {
		return err
	}
	describe(doc)
	if err := errors.Join(messages(doc), requests(doc), examples(doc)); err != nil {
		return err
	}
	mergePatches(doc)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(doc); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	_, err = out.Write(b.Bytes())
	return err
}

// onePathEach brings the methods of one path together. The generator names path parameters after fields:
// {machine.machine_id} and {machine_id} in one place are two paths to it. To HTTP, and to OpenAPI, they are one.
func onePathEach(paths object) (object, error) {
	out := object{}
	for path, item := range paths {
		short := path
		for name := range parameters(path) {
			last := name[strings.LastIndexByte(name, '.')+1:]
			short = strings.ReplaceAll(short, "{"+name+"}", "{"+last+"}")
			rename(asObject(item), name, last)
		}
		if out[short] == nil {
			out[short] = object{}
		}
		for method, described := range asObject(item) {
			if _, twice := asObject(out[short])[method]; twice {
				return nil, fmt.Errorf("%s %s is mapped twice", method, short)
			}
			asObject(out[short])[method] = described
		}
	}
	return out, nil
}

func parameters(path string) map[string]bool {
	out := map[string]bool{}
	for _, s := range strings.Split(path, "/") {
		if strings.HasPrefix(s, "{") {
			out[strings.Trim(s, "{}")] = true
		}
	}
	return out
}

func rename(item object, from, to string) {
	for _, described := range item {
		list, _ := asObject(described)["parameters"].([]any)
		for _, p := range list {
			if p := asObject(p); p["in"] == "path" && p["name"] == from {
				p["name"] = to
			}
		}
	}
}

// streamTypes describes streams as one document a line.
func streamTypes(paths object) {
	for _, item := range paths {
		for _, described := range asObject(item) {
			d := asObject(described)
			answer := asObject(asObject(d["responses"])["200"])
			if text, _ := answer["description"].(string); strings.Contains(text, "(streaming responses)") {
				answer["description"] = "A stream: one document a line, as long as it lasts."
				d["produces"] = []string{streamType}
			}
		}
	}
}

// maintenance: JSON prints the effective state MAINTENANCE_IDLE as MAINTENANCE, and so does its description.
func maintenance(v any) {
	switch v := v.(type) {
	case object:
		for key, child := range v {
			if text, ok := child.(string); ok && key == "description" {
				v[key] = strings.ReplaceAll(text, " - MAINTENANCE_IDLE:", " - MAINTENANCE:")
			}
			maintenance(child)
		}
	case []any:
		for i, child := range v {
			if child == "MAINTENANCE_IDLE" {
				v[i] = "MAINTENANCE"
			} else {
				maintenance(child)
			}
		}
	}
}

func asObject(v any) object {
	o, _ := v.(object)
	return o
}

// nodeHistory describes the lines of a node's history as the gateway writes them: states by their plain names, null for
// absent values, values of any type in the metadata.
func nodeHistory(doc object) {
	line := asObject(asObject(doc["definitions"])["baremetal.v1.NodeStateLog"])
	text := func(description string) object { return object{"type": "string", "description": description} }
	null := func(o object) object {
		o["x-nullable"] = true
		return o
	}
	line["properties"] = object{
		"id":         object{"type": "string", "format": "uuid", "description": "Names the line."},
		"from_state": text("Such as installing."), "to_state": text("Such as install_failed."),
		"triggered_by": text("admin, system, workflow or node_report."),
		"user_id":      null(text("Null where the system asked.")), "comment": null(text("Null where none was given.")),
		"metadata":   null(object{"type": "object", "description": "Null where there is none."}),
		"created_at": object{"type": "string", "format": "date-time", "description": "When it happened."},
	}
}
