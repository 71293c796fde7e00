package encode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/internal/safetext"
)

// YAML returns the document of JSON as YAML, which parses to the same data.
func YAML(m proto.Message) ([]byte, error) {
	line, err := Decoded(m)
	if err != nil {
		return nil, err
	}
	// YAML's own reader refuses JSON with some escapes, so that the nodes are made of JSON's tokens.
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	node, err := yamlNode(dec)
	if err != nil {
		return nil, fmt.Errorf("read back JSON: %w", err)
	}
	out, err := yaml.Marshal(node)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return safetext.Quoted(out), nil
}

// yamlNode reads one value, with the fields of objects in their order.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		kind, tag := yaml.MappingNode, "!!map"
		if t == '[' {
			kind, tag = yaml.SequenceNode, "!!seq"
		}
		return yamlCollection(dec, &yaml.Node{Kind: kind, Tag: tag})
	case string:
		return yamlText(t), nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

func yamlCollection(dec *json.Decoder, n *yaml.Node) (*yaml.Node, error) {
	for dec.More() {
		child, err := yamlNode(dec) // a key, or an element
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err := dec.Token()
	return n, err
}

var (
	// oldBooleans are the words that YAML 1.1 readers take for booleans; as strings they stay quoted.
	oldBooleans = []string{"y", "n", "yes", "no", "on", "off"}
	// oldNumbers are strings that YAML 1.1 readers take for numbers of base 60, or of other forms with signs.
	oldNumbers = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$|^[-+.]?[0-9_]+$`)
	// plainLines are lines that a block of several lines holds as they are.
	plainLines = regexp.MustCompile(`^[^ \t\n][^\t]*$`)
)

// yamlText quotes a string wherever a reader could take it for anything else.
func yamlText(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	switch {
	case strings.ContainsFunc(s, safetext.Unsafe), strings.Contains(s, "\n") && !plainLines.MatchString(s),
		slices.Contains(oldBooleans, strings.ToLower(s)), oldNumbers.MatchString(s), s == "=", s == "<<":
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
