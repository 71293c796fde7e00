package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theory/jsonpath"
)

// pathPrefix begins an --output that selects parts of the document that json prints.
const pathPrefix = "jsonpath="

// parsePath reads a path of RFC 9535.
func parsePath(text string) (*jsonpath.Path, error) {
	path, err := jsonpath.Parse(text)
	if err != nil {
		return nil, Usagef("--output jsonpath=%s: %w; a path of RFC 9535 is such as '$.machines[*].machine_id'", text, err)
	}
	return path, nil
}

// WriteJSON writes a document in JSON, or what --output jsonpath=PATH selects from it, a line each: texts as they are,
// and other values as JSON.
func (a *App) WriteJSON(document []byte) error {
	if a.path == nil {
		return a.Write(string(document) + "\n")
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return fmt.Errorf("read back JSON: %w", err)
	}
	var out strings.Builder
	for node := range a.path.Select(tree).All() {
		text, isText := node.(string)
		if !isText {
			raw, err := json.Marshal(node)
			if err != nil {
				return fmt.Errorf("write JSON: %w", err)
			}
			text = string(raw)
		}
		out.WriteString(text + "\n")
	}
	return a.Write(out.String())
}

// PrintJSON writes a document that is no message of the API, and reports whether --output wants one.
func (a *App) PrintJSON(document any) (printed bool, err error) {
	if a.path == nil && a.Flags.Output != "json" {
		return false, nil
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return true, fmt.Errorf("write JSON: %w", err)
	}
	return true, a.WriteJSON(raw)
}
