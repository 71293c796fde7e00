package encode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theory/jsonpath"
)

// Path is a path of RFC 9535, which selects parts of a document in JSON.
type Path struct{ path *jsonpath.Path }

// ParsePath reads a path.
func ParsePath(text string) (*Path, error) {
	path, err := jsonpath.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w; a path of RFC 9535 is such as '$.machines[*].machine_id'", err)
	}
	return &Path{path}, nil
}

// Select returns what the path selects from a document, a line each: texts as they are, and other values as JSON.
func (p *Path) Select(document []byte) (string, error) {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return "", fmt.Errorf("read back JSON: %w", err)
	}
	var out strings.Builder
	for node := range p.path.Select(tree).All() {
		text, isText := node.(string)
		if !isText {
			raw, err := json.Marshal(node)
			if err != nil {
				return "", fmt.Errorf("write JSON: %w", err)
			}
			text = string(raw)
		}
		out.WriteString(text + "\n")
	}
	return out.String(), nil
}
